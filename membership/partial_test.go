package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// serving waits until at least so many of the gateways stand in one view of which
// the pool owes nothing, and tells how long that took.
func serving(t *testing.T, gateways []*gateway, least int) time.Duration {
	t.Helper()
	began := time.Now()
	until(t, "enough gateways stand", func() bool {
		standing := 0
		for _, g := range gateways {
			if !g.gone && g.Standing().Valid(time.Now()) {
				standing++
			}
		}
		return standing >= least
	})
	return time.Since(began)
}

// ghosts names the members of the leader's view that do not stand.
func ghosts(t *testing.T, gateways []*gateway) []string {
	t.Helper()
	var names []string
	for _, m := range leaderOf(t, gateways).View().Members {
		at := slices.IndexFunc(gateways, func(g *gateway) bool { return g.name == m.Name })
		if s := gateways[at].Standing(); s.Node != m.Node || !s.Valid(time.Now()) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Everything is cut for three leases and then healed but for one link: the others go
// on, and the view has nobody who does not stand. The two ends of the link may be
// anybody, the leader of before among them.
func TestHealedButForOneLink(t *testing.T) {
	t.Parallel() // they mostly wait
	var n network
	gateways := n.five(t)
	define(t, gateways[0], "p", 3)
	for _, pair := range [][2]int{{0, 1}, {3, 4}} {
		for i, a := range gateways {
			for _, b := range gateways[:i] {
				n.block(a, b)
			}
		}
		time.Sleep(3 * gateways[0].View().Lease)
		for i, a := range gateways {
			for j, b := range gateways[:i] {
				if j != pair[0] || i != pair[1] {
					n.unblock(a, b)
				}
			}
		}
		took := serving(t, gateways, 4)
		t.Logf("all but %v healed: four stand after %v", pair, took)
		if took > 5*time.Second {
			t.Errorf("four stand after %v", took)
		}
		until(t, "all members stand", func() bool { return len(ghosts(t, gateways)) == 0 })
		n.heal()
		settle(t, gateways)
	}
}

// A gateway that can open no new connections, and one that nobody can open one to,
// do not keep the others from going on when somebody else is killed.
func TestNoNewConnections(t *testing.T) {
	t.Parallel() // they mostly wait
	for name, bar := range map[string]func(n *network, g *gateway, others []*gateway){
		"to anybody": func(n *network, g *gateway, others []*gateway) {
			for _, o := range others {
				n.bar(g, o)
			}
		},
		"from anybody": func(n *network, g *gateway, others []*gateway) {
			for _, o := range others {
				n.bar(o, g)
			}
		},
	} {
		for _, who := range []string{"follower", "leader"} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				var n network
				gateways := n.five(t)
				define(t, gateways[0], "p", 3)
				odd := followerOf(t, gateways)
				if who == "leader" {
					odd = leaderOf(t, gateways)
				}
				others := without(gateways, odd)
				bar(&n, odd, others)
				dead := others[0]
				lost := dead.stands()
				dead.kill()
				left := others[1:]
				took := suspended(t, left, lost)
				took += serving(t, left, 3)
				t.Logf("the killed one is suspended and the others stand after %v", took)
				if took > 4*time.Second {
					t.Errorf("it takes %v", took)
				}
				n.heal()
				settle(t, without(gateways, dead))
			})
		}
	}
}

// A member whose report does not reach the pool's home is suspended by the home's
// complaints, though it renews.
func TestMissed(t *testing.T) {
	t.Parallel() // they mostly wait
	n := network{missing: func(g *gateway) map[kmutex.Node]time.Time {
		if p, ok := g.View().Pool("p"); ok {
			if self, in := g.Self(); in && p.Home == self {
				for _, m := range g.View().Members {
					if m.Name == "missed" && uint64(m.Node) <= p.Began {
						return map[kmutex.Node]time.Time{m.Node: time.Now().Add(-time.Second)}
					}
				}
			}
		}
		return nil
	}}
	gateways := n.three(t, nil)
	settle(t, gateways)
	define(t, gateways[0], "p", 3)
	// It comes into the epoch by the next one.
	missed := n.start(t, "missed", config{expect: 1, joining: true, join: []string{gateways[0].gossip}, stays: true})
	old := missed.stands()
	p := poolOf(t, missed, "p")
	if err := gateways[0].Recover(t.Context(), "p", p.Epoch); err != nil {
		t.Fatal(err)
	}
	if poolOf(t, gateways[0], "p").Home == old.Node {
		t.Fatal("it is the home itself: give it another name")
	}
	took := suspended(t, gateways, old)
	t.Logf("suspended after %v", took)
	if bound := gateways[0].View().Lease/2 + time.Second; took > bound {
		t.Errorf("suspended after %v, want less than %v", took, bound)
	}
}
