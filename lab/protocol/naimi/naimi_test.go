package naimi_test

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol/naimi"
	"github.com/kgate/kgate/test/mutant"
)

var seeds = flag.Uint64("seeds", 1000, "seeds of the fuzz")

func TestExplore(t *testing.T) {
	for _, s := range []check.Scope{
		{Nodes: 2, Requests: 3, AnyOrder: true},
		{Nodes: 3, Requests: 2, AnyOrder: true},
		{Nodes: 4, Requests: 1, AnyOrder: true},
	} {
		s.Protocol, s.K = naimi.Spec(), 1
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
		if err := check.Fuzz(naimi.Spec(), check.Claims{K: 1}, seed); err != nil {
			t.Fatal(err)
		}
	}
}

// What it does not survive: a node that crashes.
func TestCrash(t *testing.T) {
	for seed := range *seeds {
		if check.Fuzz(naimi.Spec(), check.Claims{K: 1, Crashes: true}, seed) != nil {
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
				Name: "a requester keeps its parent", File: "forest.go",
				Old:    "wanted{q: q, origin: i})\n\tn.parent = none",
				New:    "wanted{q: q, origin: i})",
				Caught: "never served|panic|itself",
			},
			{
				Name: "an unused token stays", File: "forest.go",
				Old:    "if n.token && !waits {",
				New:    "if false {",
				Caught: "never served",
			},
			{
				Name: "the token is given away in the critical section", File: "forest.go",
				Old:    "if n.token && !waits {",
				New:    "if n.token {",
				Caught: "more than k|panic",
			},
			{
				Name: "the holder gives the token away and keeps it", File: "forest.go",
				Old:    "n.token, n.behind = false, nil",
				New:    "n.behind = nil",
				Caught: "more than k|panic|never served|itself",
			},
		},
	}.Run(t)
}
