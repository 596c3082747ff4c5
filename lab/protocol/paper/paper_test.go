package paper_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/paper"
	"github.com/kgate/kgate/lab/ring"
	"github.com/kgate/kgate/lab/workload"
)

// Every order of messages of small systems, with and without the printed rewrites.
func TestExplore(t *testing.T) {
	for _, rewrite := range []bool{false, true} {
		for _, s := range []check.Scope{{Nodes: 3, K: 1, Requests: 2}, {Nodes: 3, K: 2, Requests: 2}, {Nodes: 4, K: 1, Requests: 1}, {Nodes: 4, K: 2, Requests: 1}} {
			if testing.Short() && s.K*s.Requests*s.Nodes > 6 {
				continue
			}
			s.Protocol, s.AnyOrder = paper.Spec("paper", paper.Options{Rewrite: rewrite}), true
			if states, err := check.Explore(s); err != nil || states < 100 {
				t.Errorf("rewrite %v, %+v: %d states, %v", rewrite, s, states, err)
			}
		}
	}
}

func run(t *testing.T, p protocol.Spec, lost []int) *meter.Result {
	t.Helper()
	cfg := lab.Config{
		Seed: 1, Nodes: 30, K: 3, Protocol: p, Network: network.Constant(time.Second), Warmup: 1000 * time.Second, Duration: 2000 * time.Second, Detect: 5 * time.Second,
		Workload: workload.Config{Closed: &workload.Closed{Rate: .5}, Hold: workload.Constant(10 * time.Second)},
	}
	for _, i := range lost {
		cfg.Changes = append(cfg.Changes, lab.Change{At: cfg.Warmup, Node: i, Kind: lab.Crash})
	}
	r, err := lab.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Without its extras it is what kgate's early binding is.
func TestIsEarlyBinding(t *testing.T) {
	ours, theirs := run(t, fairk.Paper(), nil), run(t, paper.Spec("paper", paper.Options{}), nil)
	if a, b := ours.Wait.Mean().Seconds(), theirs.Wait.Mean().Seconds(); math.Abs(a-b) > .01*a {
		t.Errorf("mean wait %.2f s, ours %.2f s", b, a)
	}
	if a, b := ours.MessagesPerEntry(), theirs.MessagesPerEntry(); math.Abs(a-b) > .03*a {
		t.Errorf("%.2f messages per entry, ours %.2f", b, a)
	}
}

// With section 5 the others go on after a loss, unless a node is lost with all its successors.
func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		p      int
		lost   []int
		serves bool
	}{
		{2, []int{4, 5, 9, 29}, true},
		{4, []int{1, 2, 3, 4, 9, 10, 15, 17, 18, 27, 28, 29}, true},
		{3, []int{4, 5, 6, 0, 29, 28}, true},
		{2, []int{4, 5, 6}, false},
		{0, []int{4}, false},
	} {
		r := run(t, paper.Spec("paper", paper.Options{Replicas: c.p}), c.lost)
		all := true
		for i, last := range r.NodeLast {
			all = all && (last > 2000*time.Second || slices.Contains(c.lost, i))
		}
		if all != c.serves {
			t.Errorf("p = %d, %v lost: all others are served: %v", c.p, c.lost, all)
		}
	}
}

// Loss by loss the ring model is right: the others are served unless p+1 neighbours are lost.
func TestRandomLosses(t *testing.T) {
	const p = 3
	r := rand.New(rand.NewPCG(1, 2))
	for draw := range 40 {
		gone := make([]bool, 30)
		lost := r.Perm(30)[:10]
		for _, i := range lost {
			gone[i] = true
		}
		served := true
		for i, last := range run(t, paper.Spec("paper", paper.Options{Replicas: p}), lost).NodeLast {
			served = served && (gone[i] || last > 2000*time.Second)
		}
		if survives := ring.LongestRun(gone) <= p; served != survives {
			t.Errorf("draw %d, %v lost: all others are served: %v, by the ring model %v", draw, lost, served, survives)
		}
	}
}
