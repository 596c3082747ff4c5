package lease

import (
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// round asks the voters whether the leader still is one.
type round struct {
	number uint64
	voters int
	// awaited are the voters that have not answered.
	awaited map[string]bool
	yes     int
	// renewals are those that were received before it began.
	renewals map[kmutex.Node]received
}

// Waiting reports that there are renewals which the next round would answer.
func (g *Grantor) Waiting() bool { return len(g.pending) > 0 && !g.deposed }

// Begin begins a round, for all renewals that have been received so far. Voters
// returns those of raft's newest configuration, the leader among them. It is called
// when the renewals have been taken in: voters that were read before might have been
// replaced when the last renewal came. Each of them is to be asked *after* this call
// which term it is in. A round that was not decided is over; its renewals get no
// answer.
func (g *Grantor) Begin(voters func() []string) (number uint64) {
	g.rounds++
	g.round = round{number: g.rounds, awaited: make(map[string]bool), renewals: g.pending}
	g.pending = make(map[kmutex.Node]received)
	for _, v := range voters() {
		g.round.awaited[v] = true
	}
	g.round.voters = len(g.round.awaited)
	return g.rounds
}

// Answer takes in the term that a voter was in when it was asked in a round.
// With the answer that makes a majority it returns the renewals that are granted
// by it, and decided is true. Once a later term is known nothing is ever
// granted.
func (g *Grantor) Answer(number uint64, voter string, term uint64) (granted []Renewal, decided bool) {
	r := &g.round
	if term > g.term {
		g.deposed = true
	}
	if number != r.number || !r.awaited[voter] || g.deposed {
		return nil, false
	}
	delete(r.awaited, voter)
	if term == g.term {
		r.yes++
	}
	if r.yes <= r.voters/2 || r.renewals == nil {
		return nil, false
	}
	granted = g.grant(r.renewals)
	r.renewals = nil
	return granted, true
}

// Deposed reports that a voter knows of a later term.
func (g *Grantor) Deposed() bool { return g.deposed }

func (g *Grantor) grant(renewals map[kmutex.Node]received) []Renewal {
	var granted []Renewal
	for _, node := range slices.Sorted(maps.Keys(renewals)) {
		// It may have been lost since: then it must not be extended any more.
		if !g.member(node) {
			continue
		}
		r := renewals[node]
		g.granted[node] = r.at
		granted = append(granted, r.renewal)
	}
	return granted
}

// asked is a round that a majority answers as a whole, in the order of their beginnings.
type asked struct {
	number   uint64
	renewals map[kmutex.Node]received
}

// Ask begins a round, for all renewals that have been received so far. Others may be open.
func (g *Grantor) Ask() (number uint64) {
	g.rounds++
	g.asked = append(g.asked, asked{g.rounds, g.pending})
	g.pending = make(map[kmutex.Node]received)
	return g.rounds
}

// Confirm takes in that a majority of the voters was still in this term after the round had begun, and
// returns the renewals that are granted by it: its own, and those of the rounds before it.
func (g *Grantor) Confirm(number uint64) (granted []Renewal) {
	for len(g.asked) > 0 && g.asked[0].number <= number {
		granted = append(granted, g.grant(g.asked[0].renewals)...)
		g.asked = g.asked[1:]
	}
	return granted
}
