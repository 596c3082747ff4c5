package lease

import (
	"maps"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Grantor is the leader's end of all leases, in one term. It is used by one
// goroutine at a time.
type Grantor struct {
	terms Terms
	term  uint64
	since time.Duration
	// members are those of the agreed view; heard is when the newest renewal was
	// received.
	members map[kmutex.Node]bool
	heard   map[kmutex.Node]time.Duration
	lost    map[kmutex.Node]bool
	// granted is when the newest renewal that was granted had been received, by
	// members and lost ones.
	granted map[kmutex.Node]time.Duration
	// pending are the newest renewals that no round has been begun for.
	pending map[kmutex.Node]received
	rounds  uint64
	open    []round // in the order of their beginnings
}

type received struct {
	renewal Renewal
	at      time.Duration
}

// NewGrantor returns the end of a leader that leads since now, or longer. It
// must know of everything that the leaders before it have committed.
func NewGrantor(terms Terms, term uint64, now time.Duration) *Grantor {
	return &Grantor{
		terms: terms, term: term, since: now,
		members: make(map[kmutex.Node]bool),
		heard:   make(map[kmutex.Node]time.Duration),
		lost:    make(map[kmutex.Node]bool),
		granted: make(map[kmutex.Node]time.Duration),
		pending: make(map[kmutex.Node]received),
	}
}

// Again returns the end of the same leader in the very next term. Nobody else
// led between the two, so what was granted before is known, and nothing has to
// be waited for. It returns nil for any other term.
func (g *Grantor) Again(term uint64) *Grantor {
	if term != g.term+1 {
		return nil
	}
	again := NewGrantor(g.terms, term, g.since)
	maps.Copy(again.members, g.members)
	maps.Copy(again.heard, g.heard)
	maps.Copy(again.lost, g.lost)
	maps.Copy(again.granted, g.granted)
	return again
}

// Follow takes in the agreed view: the members, and the lost ones whose leases
// may still run.
func (g *Grantor) Follow(members, lost []kmutex.Node) {
	clear(g.members)
	for _, node := range members {
		g.members[node] = true
	}
	clear(g.lost)
	for _, node := range lost {
		g.lost[node] = true
	}
	gone := func(node kmutex.Node) bool { return !g.member(node) }
	maps.DeleteFunc(g.heard, func(node kmutex.Node, _ time.Duration) bool { return gone(node) })
	maps.DeleteFunc(g.pending, func(node kmutex.Node, _ received) bool { return gone(node) })
	maps.DeleteFunc(g.granted, func(node kmutex.Node, _ time.Duration) bool { return gone(node) && !g.lost[node] })
}

func (g *Grantor) member(node kmutex.Node) bool { return g.members[node] }

// Receive takes in a renewal. It reports whether a round may grant it: only
// those of members.
func (g *Grantor) Receive(r Renewal, now time.Duration) bool {
	if !g.member(r.Node) {
		return false
	}
	g.heard[r.Node] = now
	g.pending[r.Node] = received{renewal: r, at: now}
	return true
}

// Expired reports that a lost member's lease has provably run out. It is false
// for all others: they may be granted one more.
func (g *Grantor) Expired(node kmutex.Node, now time.Duration) bool {
	if g.member(node) || !g.lost[node] {
		return false
	}
	return now-max(g.since, g.granted[node]) >= g.terms.Wait()
}

// Heard returns when the newest renewal of a member was received; false if none
// was in this term.
func (g *Grantor) Heard(node kmutex.Node) (at time.Duration, ok bool) {
	at, ok = g.heard[node]
	return at, ok
}
