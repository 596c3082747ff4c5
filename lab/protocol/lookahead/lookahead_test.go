package lookahead

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol"
)

var seeds = flag.Uint64("seeds", 100, "seeds of the fuzz for each protocol")

func all() []protocol.Spec { return []protocol.Spec{Written(), Sections(2), Sections(4)} }

// Every order of messages of small systems.
func TestExplore(t *testing.T) {
	for _, p := range all() {
		for _, s := range []check.Scope{{Nodes: 2, K: 1, Requests: 2}, {Nodes: 3, K: 1, Requests: 1}} {
			if s.Nodes > 2 && p.Name == Sections(4).Name {
				continue // the seconds are better spent on shorter sections
			}
			s.Protocol, s.AnyOrder = p, true
			states, err := check.Explore(s)
			t.Logf("%s, %d nodes, k = %d, %d requests each: %d states", p.Name, s.Nodes, s.K, s.Requests, states)
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// Random delays.
func TestFuzz(t *testing.T) {
	for _, p := range all() {
		for seed := range *seeds {
			if err := check.Fuzz(p, check.Claims{K: 6}, seed); err != nil {
				t.Error(err)
				break
			}
		}
	}
}

func TestMutantsAreCaught(t *testing.T) {
	const (
		line = "line.go"
		sect = "sections.go"
		home = "written.go"
	)
	mutant.Suite{
		By: "^(TestExplore|TestFuzz)$",
		Mutants: []mutant.Mutant{
			{
				Name: "a requester keeps its parent", File: line, Caught: "never served|panic",
				Old: "\tn.parent = none\n\tl.send(i, parent", New: "\tl.send(i, parent",
			},
			{Name: "home hands out a token twice", File: home, Caught: "more than k|panic", Old: "\t\tw.stock -= n\n", New: ""},
			{Name: "a scout waits for ever", File: sect, Caught: "never served|panic", Old: "b.scout, b.found = m.captain, m.first+len(m.places)", New: "b.found = m.first + len(m.places)"},
			{Name: "a report hides another", File: sect, Caught: "never served|panic", Old: "copy(b.places[m.first:], m.places)", New: "copy(b.places, m.places)"},
			{Name: "tokens that came before the baton are counted again", File: sect, Caught: "more than k|panic", Old: "n.free, n.parked = m.free+n.parked, 0", New: "n.free = m.free + n.parked"},
			{Name: "tokens that came before the baton are forgotten", File: sect, Caught: "never served", Old: "m.free+n.parked, 0", New: "m.free, 0"},
		},
	}.Run(t)
}
