package proxy

import (
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/httplist"
	"github.com/kgate/kgate/proxy/http1"
)

// minWait is what "Prefer: wait=0" is taken for: long enough to be given a slot
// that is free, be it at another gateway, too short to queue.
const minWait = 10 * time.Millisecond

// preference returns the value of a preference (RFC 7240), and whether it
// is there. Of several, the first counts (section 2).
func preference(fields http1.Fields, name string) (value string, found bool) {
	for p := range httplist.Elements(fields.Values("Prefer")) {
		key, value, _ := strings.Cut(httplist.Parameters(p)[0], "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return httplist.Unquote(strings.TrimSpace(value)), true
		}
	}
	return "", false
}

// ticketPreference is the gateway's own, for a client that prefers a ticket to a long
// wait. It is not respond-async (section 4.1), which is between client and
// upstream: a 202 to that would look like the upstream's.
const ticketPreference = "kgate-ticket"

// prefersTicket reports whether the client prefers a ticket to waiting.
func prefersTicket(fields http1.Fields) bool {
	_, ok := preference(fields, ticketPreference)
	return ok
}

// preferredWait returns the value of the preference "wait" (section 4.3), and
// false if there is none that can be understood.
func preferredWait(fields http1.Fields) (seconds int, ok bool) {
	value, _ := preference(fields, "wait")
	return parseDeltaSeconds(value)
}

// parseDeltaSeconds reads digits. What is too large for an
// int32 is taken as its maximum, as RFC 9111, section 1.2.2 has it.
func parseDeltaSeconds(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 1<<31 - 1, true
	}
	return int(n), true
}

// queueTimeout returns how long a request may wait: limit, or less if the
// client prefers so. Negative is without limit. applied is the preference that
// was honoured, -1 if none was.
func queueTimeout(limit time.Duration, fields http1.Fields) (wait time.Duration, applied int) {
	seconds, ok := preferredWait(fields)
	if !ok {
		return limit, -1
	}
	preferred := max(time.Duration(seconds)*time.Second, minWait)
	if limit >= 0 && preferred >= limit {
		return limit, -1
	}
	return preferred, seconds
}
