package lease

import (
	"time"

	"github.com/kgate/kgate/kmutex"
)

// outstanding is how many renewals of an incarnation can be on their way.
const outstanding = 3

// Holder is an incarnation's end of its lease. It is used by one goroutine at a
// time.
type Holder struct {
	terms Terms
	node  kmutex.Node
	// tag is the newest renewal's, and sent when the newest ones were sent, by tag.
	tag   uint64
	sent  [outstanding]time.Duration
	due   time.Duration
	held  bool
	until time.Duration // before the first lease: how long it waits for that
	over  bool
}

// NewHolder returns the end of an incarnation that holds no lease yet. Its
// first renewal is due at once.
func NewHolder(terms Terms, node kmutex.Node, now time.Duration) *Holder {
	return &Holder{terms: terms, node: node, due: now, until: now + 2*terms.Lease}
}

// Due returns when the next renewal is to be sent.
func (h *Holder) Due() time.Duration { return h.due }

// Send returns the renewal that is sent now. The lease counts from here, since
// nobody can have received it before.
func (h *Holder) Send(now time.Duration) Renewal {
	h.tag++
	h.sent[h.tag%outstanding] = now
	h.due = now + h.terms.Interval()
	return Renewal{Node: h.node, Tag: h.tag}
}

// DueBy has the next renewal sent at the given time, if it would be later.
func (h *Holder) DueBy(at time.Duration) { h.due = min(h.due, at) }

// Granted takes in that a renewal was granted. It reports whether the lease is
// longer now: a renewal of another incarnation, or one that [outstanding] newer ones
// have followed, counts nothing, nor does any once the lease has lapsed.
func (h *Holder) Granted(r Renewal, now time.Duration) bool {
	if r.Node != h.node || r.Tag > h.tag || h.tag-r.Tag >= min(outstanding, h.tag) || h.Over(now) {
		return false
	}
	until := h.sent[r.Tag%outstanding] + h.terms.Lease - h.terms.margin()
	if until <= now || h.held && until <= h.until {
		return false
	}
	h.held, h.until = true, until
	return true
}

// Until returns when the lease ends; false if there is none, or none any more.
func (h *Holder) Until() (time.Duration, bool) { return h.until, h.held && !h.over }

// Over reports that the incarnation had a lease which has lapsed, or got none for the time
// of two. That is for ever.
func (h *Holder) Over(now time.Duration) bool {
	if now >= h.until {
		h.over = true
	}
	return h.over
}
