package lookahead

import (
	"flag"
	"testing"

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
