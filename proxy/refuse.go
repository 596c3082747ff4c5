package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// statusClientGone is what the log shows for a client that left before it was
// answered, nginx's "client closed request".
const statusClientGone = 499

// problem is the body of an answer that the gateway gives itself (RFC 9457).
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Pool       string `json:"pool,omitempty"`
	Reason     Reason `json:"reason,omitempty"`
	RetryAfter int    `json:"retry_after,omitempty"`
}

var refusalDetails = map[Reason]string{
	ReasonQueueFull:    "the line of this pool is full",
	ReasonTimeout:      "no slot became free in time",
	ReasonDraining:     "this gateway is being taken out of service",
	ReasonIsolated:     "this gateway has lost touch with the others and may not admit requests",
	ReasonUpstreamDown: "no upstream of this pool passes its health check",
	ReasonClientLimit:  "too many of this client's requests wait already",
	ReasonCancelled:    "an operator has taken this request out of the line",
}

// writeRefusal answers a request that was not admitted.
func writeRefusal(w http.ResponseWriter, r *http.Request, pool string, refusal *Refusal) {
	detail, ok := refusalDetails[refusal.Reason]
	if !ok {
		detail = "the gateway does not admit this request"
	}
	writeRefusalDetail(w, r, pool, refusal, detail)
}

func writeRefusalDetail(w http.ResponseWriter, r *http.Request, pool string, refusal *Refusal, detail string) {
	seconds := retryAfterSeconds(refusal.RetryAfter)
	h := w.Header()
	h.Set("Retry-After", strconv.Itoa(seconds))
	h.Set("Kgate-Refusal", string(refusal.Reason))
	if refusal.Limit > 0 {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;qu="concurrent-requests"`, pool, refusal.Limit))
		h.Set("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, pool, seconds))
	}
	writeProblem(w, r, problem{
		Status:     refusal.Reason.status(),
		Detail:     detail,
		Pool:       pool,
		Reason:     refusal.Reason,
		RetryAfter: seconds,
	})
}

// writeProblem writes p as problem+json if r accepts it, else as one plain line.
func writeProblem(w http.ResponseWriter, r *http.Request, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	var body []byte
	if acceptsProblem(r.Header) {
		h.Set("Content-Type", "application/problem+json")
		body, _ = json.Marshal(p) // strings and integers cannot fail
		body = append(body, '\n')
	} else {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		body = fmt.Appendf(nil, "%d %s: %s\n", p.Status, p.Title, p.Detail)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone; nobody is left to tell
}

// retryAfterSeconds rounds d up to whole seconds, at least one.
func retryAfterSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}

// acceptsProblem reports whether JSON is acceptable and text not preferred. A
// browser names text/html first and everything else last: it gets the line.
func acceptsProblem(h http.Header) bool {
	accept := h["Accept"]
	if len(accept) == 0 {
		return true
	}
	var jsonQ, textQ quality
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			mediaRange, params, _ := strings.Cut(item, ";")
			q := parseQ(params)
			switch strings.ToLower(strings.TrimSpace(mediaRange)) {
			case "application/problem+json":
				jsonQ.see(3, q)
			case "application/json":
				jsonQ.see(2, q)
			case "application/*":
				jsonQ.see(1, q)
			case "text/plain", "text/html":
				textQ.see(2, q)
			case "text/*":
				textQ.see(1, q)
			case "*/*":
				jsonQ.see(0, q)
				textQ.see(0, q)
			}
		}
	}
	return jsonQ.q > 0 && jsonQ.q >= textQ.q
}

// quality is the weight of the most specific media range seen so far.
type quality struct {
	specificity int
	q           float64
	seen        bool
}

func (s *quality) see(specificity int, q float64) {
	switch {
	case !s.seen || specificity > s.specificity:
		*s = quality{specificity: specificity, q: q, seen: true}
	case specificity == s.specificity:
		s.q = max(s.q, q)
	}
}

// parseQ returns the weight among a media range's parameters; 1 if there is
// none, 0 if it is malformed.
func parseQ(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}
