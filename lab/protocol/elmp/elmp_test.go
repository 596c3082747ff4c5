package elmp_test

import (
	"flag"
	"os"
	"testing"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/elmp"
)

var seeds = flag.Uint64("seeds", 400, "seeds of the fuzz")

func TestExplore(t *testing.T) {
	for _, s := range []struct {
		check.Scope
		long bool
	}{
		{check.Scope{Nodes: 2, Requests: 3}, false},
		{check.Scope{Nodes: 3, Requests: 1}, false},
		{check.Scope{Nodes: 2, Requests: 2, Leaves: 1}, false},
		{check.Scope{Nodes: 3, Members: 2, Requests: 1, Joins: 1, Bounded: true}, false},
		{check.Scope{Nodes: 3, Requests: 1, Leaves: 1}, false},
		{check.Scope{Nodes: 3, Requests: 1, Leaves: 2}, true},
	} {
		if s.long && testing.Short() {
			continue
		}
		s.Protocol, s.K = elmp.Spec(), 1
		states, err := check.Explore(s.Scope)
		t.Logf("%d nodes, %d requests each, %d leave, %d join: %d states", s.Nodes, s.Requests, s.Leaves, s.Joins, states)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Nodes that join and leave at any time.
func TestFuzz(t *testing.T) {
	for _, p := range []protocol.Spec{elmp.Spec(), elmp.With("elmp-lazy", elmp.Options{Lazy: true})} {
		for seed := range *seeds {
			if err := check.Fuzz(p, check.Claims{K: 1, Leaves: true, Joins: true}, seed); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What it does not survive: a node that crashes.
func TestCrash(t *testing.T) {
	for seed := range *seeds {
		if check.Fuzz(elmp.Spec(), check.Claims{K: 1, Crashes: true}, seed) != nil {
			return
		}
	}
	t.Error("crashes do no harm")
}

// The holes of the paper, and of our own way around them. What they show is about
// the paper, and changes no more: not in CI.
func TestMutantsAreCaught(t *testing.T) {
	if os.Getenv("KGATE_SOAK") == "" {
		t.Skip("for the long run: KGATE_SOAK")
	}
	mutant.Suite{
		By: "^(TestFuzz|TestExplore)$", Args: []string{"-test.short", "-test.timeout=300s", "-seeds=1000"},
		Mutants: []mutant.Mutant{
			{
				Name: "the unused token of the root stays there", File: "elmp.go",
				Old: "if n.token && !n.inside && n.request == 0 {", New: "if false {",
				Caught: "never served",
			},
			{
				Name: "the token is given away in the critical section", File: "elmp.go",
				Old: "if n.token && !n.inside && n.request == 0 {", New: "if n.token {",
				Caught: "more than k|panic|never served",
			},
			{
				Name: "a direct child of the root is treated like the others", File: "elmp.go",
				Old: "if above == r.root {", New: "if false {",
				Caught: "never served|panic|itself",
			},
			{
				Name: "a path is freed before the tree has changed", File: "elmp.go",
				Old: "\tn.send(r.root, \"replaced\", old)", New: "\tn.host.Send(n.self, r.root, \"replaced\", old)\n\tn.release()",
				Caught: "never served|panic|itself",
			},
			{
				Name: "a path is freed all at once", File: "elmp.go",
				Old:    "\tf := free{path: others, owner: n.self}\n\tf.next(n)\n",
				New:    "\tfor _, p := range others {\n\t\tn.host.Send(n.self, p, \"free\", free{owner: p})\n\t}\n\tn.finish()\n",
				Caught: "never served|panic|itself",
			},
			{
				Name: "a new parent is acknowledged to the one who decided", File: "elmp.go",
				Old: "n.host.Send(n.self, m.old, \"ack\", ack{})", New: "n.host.Send(n.self, by, \"ack\", ack{})",
				Caught: "never served|panic|itself",
			},
			{
				Name: "what waits for a former parent stays there", File: "elmp.go",
				Old: "if n.ahead != nil && n.owner != by {", New: "if false {",
				Caught: "never served",
			},
			{
				Name: "the youngest operation goes first", File: "elmp.go",
				Old: "o.age < n.waiting[first].age", New: "o.age > n.waiting[first].age",
				Caught: "never served",
			},
			{
				Name: "who leaves keeps the token", File: "moving.go",
				Old: "n.parent, n.token, n.held = none, true, true", New: "n.parent, n.held = none, true",
				Caught: "never served|panic",
			},
			{
				Name: "the heir of the root leaves before its children know it", File: "moving.go",
				Old: "n.parent, n.token, n.held = none, true, true", New: "n.parent, n.token = none, true",
				Caught: "never served|panic",
			},
			{
				Name: "the heir of the root goes on asking for the token", File: "moving.go",
				Old: "if n.request != 0 { // it need not", New: "if false { // it need not",
				Caught: "never served|panic",
			},
		},
	}.Run(t)
}
