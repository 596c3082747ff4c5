package protocol_test

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/naimi"
	"github.com/kgate/kgate/lab/protocol/suzukikasami"
)

var seeds = flag.Uint64("seeds", 1000, "seeds of the fuzz for each algorithm")

// classics are the two algorithms that others start from. Neither says anything
// about nodes that crash, join or leave.
func classics() []protocol.Spec { return []protocol.Spec{naimi.Spec(), suzukikasami.Spec()} }

// Every order of messages of small systems.
func TestExplore(t *testing.T) {
	for _, p := range classics() {
		for _, s := range []check.Scope{{Nodes: 2, Requests: 3}, {Nodes: 3, Requests: 1}, {Nodes: 3, Requests: 2}, {Nodes: 4, Requests: 1}} {
			if p.Name == suzukikasami.Spec().Name && s.Nodes*s.Requests > 3 && s.Nodes > 2 {
				continue // each request is sent to everybody: too many orders
			}
			s.Protocol, s.K, s.AnyOrder = p, 1, true
			states, err := check.Explore(s)
			t.Logf("%s, %d nodes, %d requests each: %d states", p.Name, s.Nodes, s.Requests, states)
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// Random delays.
func TestFuzz(t *testing.T) {
	for _, p := range classics() {
		for seed := range *seeds {
			if err := check.Fuzz(p, check.Claims{K: 1}, seed); err != nil {
				t.Error(err)
				break
			}
		}
	}
}

// What they do not survive: a node that crashes.
func TestCrash(t *testing.T) {
	for _, p := range classics() {
		harm := false
		for seed := uint64(0); seed < *seeds && !harm; seed++ {
			harm = check.Fuzz(p, check.Claims{K: 1, Crashes: true}, seed) != nil
		}
		if !harm {
			t.Errorf("%s: crashes do no harm", p.Name)
		}
	}
}
