package lease

import (
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// round asks the voters whether the leader still is one.
type round struct {
	number uint64
	// renewals are those that were received before it began.
	renewals map[kmutex.Node]received
}

// Waiting reports that there are renewals which the next round would answer.
func (g *Grantor) Waiting() bool { return len(g.pending) > 0 }

// Ask begins a round, for all renewals that have been received so far. Others may be open.
func (g *Grantor) Ask() (number uint64) {
	g.rounds++
	g.open = append(g.open, round{g.rounds, g.pending})
	g.pending = make(map[kmutex.Node]received)
	return g.rounds
}

// Confirm takes in that a majority of the voters was still in this term after the round had begun, and
// returns the renewals that are granted by it: its own, and those of the rounds before it.
func (g *Grantor) Confirm(number uint64) (granted []Renewal) {
	for len(g.open) > 0 && g.open[0].number <= number {
		granted = append(granted, g.grant(g.open[0].renewals)...)
		g.open = g.open[1:]
	}
	return granted
}

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
