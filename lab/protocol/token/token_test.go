package token_test

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol/token"
)

var seeds = flag.Int("seeds", 200, "seeds of the fuzz")

func TestExplore(t *testing.T) {
	for _, s := range []check.Scope{
		{Nodes: 2, Requests: 3},
		{Nodes: 3, Requests: 2},
		{Nodes: 4, Requests: 1},
		{Nodes: 2, Requests: 2, Crashes: 1, Bounded: true},
		{Nodes: 3, Requests: 1, Crashes: 1, Bounded: true},
	} {
		s.Protocol, s.K = token.Spec(0), 1
		states, err := check.Explore(s)
		t.Logf("%d nodes, %d requests each, %d crashes: %d states", s.Nodes, s.Requests, s.Crashes, states)
		if err != nil {
			t.Error(err)
		}
	}
}

func TestFuzz(t *testing.T) {
	p := token.Spec(check.MaxDelay)
	for seed := range uint64(*seeds) {
		if err := check.Fuzz(p, check.Claims{K: 1, Crashes: true, Restarts: true}, seed); err != nil {
			t.Fatal(err)
		}
	}
}
