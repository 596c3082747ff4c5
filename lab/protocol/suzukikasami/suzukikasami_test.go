package suzukikasami_test

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol/suzukikasami"
	"github.com/kgate/kgate/test/mutant"
)

var seeds = flag.Uint64("seeds", 1000, "seeds of the fuzz")

func TestExplore(t *testing.T) {
	for _, s := range []check.Scope{
		{Nodes: 2, Requests: 3, AnyOrder: true},
		{Nodes: 3, Requests: 1, AnyOrder: true},
	} {
		s.Protocol, s.K = suzukikasami.Spec(), 1
		states, err := check.Explore(s)
		t.Logf("%d nodes, %d requests each: %d states", s.Nodes, s.Requests, states)
		if err != nil {
			t.Error(err)
		}
	}
}

// Random delays; losses, joins and leaves are not claimed.
func TestFuzz(t *testing.T) {
	for seed := range *seeds {
		if err := check.Fuzz(suzukikasami.Spec(), check.Claims{K: 1}, seed); err != nil {
			t.Fatal(err)
		}
	}
}

// What it does not survive: a node that crashes.
func TestCrash(t *testing.T) {
	for seed := range *seeds {
		if check.Fuzz(suzukikasami.Spec(), check.Claims{K: 1, Crashes: true}, seed) != nil {
			return
		}
	}
	t.Error("crashes do no harm")
}

func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{
		By: "^(TestExplore|TestFuzz)$",
		Mutants: []mutant.Mutant{
			{
				Name: "the token is given away in the critical section", File: "suzukikasami.go",
				Old:    "if n.token != nil && !n.inside {",
				New:    "if n.token != nil {",
				Caught: "more than k|panic",
			},
			{
				Name: "what was served is not written on the token", File: "suzukikasami.go",
				Old:    "\tn.token.served[i] = n.requested[i]\n",
				New:    "",
				Caught: "never served|panic",
			},
			{
				Name: "the queue does not travel with the token", File: "suzukikasami.go",
				Old:    "t.queue = slices.Clone(t.queue[1:])",
				New:    "t.queue = nil",
				Caught: "never served|panic",
			},
			{
				Name: "the holder gives the token away and keeps it", File: "suzukikasami.go",
				Old:    "\tn.token = nil\n",
				New:    "",
				Caught: "more than k|panic",
			},
		},
	}.Run(t)
}
