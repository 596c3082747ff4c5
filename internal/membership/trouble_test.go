package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

func TestExpectationsDiffer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 2})
		b := n.start(t, "b", config{expect: 3, join: []string{a.gossip}})
		for _, g := range []*gateway{a, b} {
			until(t, g.name+" waits", func() bool {
				return strings.Contains(g.stats().Problem, fmt.Sprintf("waiting for %d gateways to start a cluster, this one and 0 more are there; ", g.expect))
			})
		}
		c := n.start(t, "c", config{expect: 2, join: []string{a.gossip}})
		// Two that agree are enough; the third is let in.
		for _, g := range []*gateway{a, b, c} {
			g.ready()
		}
		agree(t, []*gateway{a, b, c}, "a", "b", "c")
	})
}

// Gateways that were all told to join, and none to start a cluster, say what is missing.
func TestNobodyStarts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 1, joining: true})
		until(t, "it says that it is alone", func() bool { return strings.Contains(a.stats().Problem, "has led to no other gateway") })
		b := n.start(t, "b", config{expect: 1, joining: true, join: []string{a.gossip}})
		for _, g := range []*gateway{a, b} {
			until(t, "it says that none has a cluster", func() bool { return strings.Contains(g.stats().Problem, "no gateway that answers has a cluster") })
		}
	})
}

// Two clusters that come to gossip with each other stay two.
func TestTwoClustersStayApart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 1})
		a.ready()
		b := n.start(t, "b", config{expect: 1, join: []string{a.gossip}}) // expects to be alone, yet joins
		b.ready()
		until(t, "they see each other", func() bool { return len(alive(a.agent.Members())) == 2 && len(alive(b.agent.Members())) == 2 })
		define(t, a, "p", 1)
		define(t, b, "p", 2)
		if len(a.names()) != 1 || len(b.names()) != 1 || a.View().Cluster == b.View().Cluster {
			t.Errorf("%+v and %+v", a.View().Members, b.View().Members)
		}
	})
}

// A gateway whose data directory is another cluster's says so.
func TestForeignDataDir(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dirs := map[string]string{"x": t.TempDir(), "y": t.TempDir()}
		old := []*gateway{n.start(t, "x", config{expect: 2, dir: dirs["x"]})}
		old = append(old, n.start(t, "y", config{expect: 2, dir: dirs["y"], join: []string{old[0].gossip}}))
		for _, g := range old {
			g.ready()
		}
		for _, g := range old {
			g.kill()
		}
		a := n.start(t, "a", config{expect: 1})
		a.ready()
		// y has no vote in its old cluster, so it has no leader.
		y := n.start(t, "y", config{expect: 1, joining: true, dir: dirs["y"], join: []string{a.gossip}})
		until(t, "it says so", func() bool { return strings.Contains(y.stats().Problem, "move its data directory away") })
		if len(a.names()) != 1 {
			t.Errorf("it is in: %v", a.names())
		}
	})
}

// Without a majority nothing is agreed, a proposal ends with its context, and
// the reason can be read.
func TestMajorityLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		for _, g := range gateways {
			g.ready()
		}
		gateways[0].kill()
		gateways[1].kill()
		c := gateways[2]
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		until(t, "no leader", func() bool { _, ok := c.Leader(); return !ok })
		if err := c.DefinePool(ctx, Pool{Name: "p", K: 1, Binding: admission.BindingLate}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		until(t, "it says why", func() bool { return strings.Contains(c.stats().Problem, "no leader: 1 of 3 voters are seen") })
	})
}

func TestSetKAndSuspend(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		define(t, gateways[0], "p", 3)
		agree(t, gateways, "a", "b", "c")
		follower := gateways[0]
		if follower == leaderOf(t, gateways) {
			follower = gateways[1]
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := follower.SetK(ctx, "p", 7, 0, 0); err != nil {
			t.Fatal(err)
		}
		if p := poolOf(t, follower, "p"); p.K != 7 || p.Epoch != 2 {
			t.Errorf("%+v", p)
		}
		if err := follower.SetK(ctx, "unknown", 7, 0, 0); !errors.Is(err, ErrCommand) {
			t.Errorf("%v", err)
		}
		// One that is taken out while it lives comes back as another node.
		node, _ := follower.Self()
		if err := follower.Suspend(ctx, follower.name); err != nil {
			t.Fatal(err)
		}
		until(t, "it is back", func() bool { now, ok := follower.Self(); return ok && now > node })
		agree(t, gateways, "a", "b", "c")
	})
}

func TestCloseEndsWaiters(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 2})
		done := make(chan error, 2)
		go func() { done <- g.Ready(context.Background()) }()
		go func() {
			done <- g.DefinePool(context.Background(), Pool{Name: "p", K: 1, Binding: admission.BindingLate})
		}()
		g.kill()
		for range 2 {
			if err := <-done; !errors.Is(err, errClosed) {
				t.Errorf("%v", err)
			}
		}
		if err := g.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}
