package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
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

// Everything is cut for three leases and then healed except for one link: the others go
// on, and the view has nobody who does not stand. The two ends of the link may be
// anybody, the leader of before among them.
func TestHealedButForOneLink(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
	})
}

// A gateway that can open no new connections, and one that nobody can open one to,
// do not keep the others from going on when somebody else is killed.
func TestNoNewConnections(t *testing.T) {
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
				virtual(t, func(t *testing.T) {
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
			})
		}
	}
}

// A leader that two others cannot talk to keeps them out as long as it leads, though a
// majority gets through to it: it hands the lead over and goes, and the four others are
// in the view.
func TestLeaderWithTwoBrokenLinks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		n := network{lease: 3 * time.Second} // load alone deposes no leader
		gateways := n.five(t)
		lead := leaderOf(t, gateways)
		others := without(gateways, lead)
		n.block(lead, others[0])
		n.block(lead, others[1])
		began := time.Now()
		until(t, "the leader is out and the others stand", func() bool {
			for _, g := range others {
				if m, in := others[2].View().Named(g.name); !in || g.Standing().Node != m.Node || !g.Standing().Valid(time.Now()) {
					return false
				}
			}
			_, in := others[2].View().Named(lead.name)
			return !in
		})
		t.Logf("after %v", time.Since(began))
		n.heal()
		settle(t, gateways)
	})
}

// A member whose report does not reach the pool's home is suspended by the home's
// complaints, though it renews.
func TestMissed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		gateways, old := missed(t, time.Second, func() time.Duration { return time.Second }, config{stays: true})
		took := suspended(t, gateways, old)
		t.Logf("suspended after %v", took)
		if bound := gateways[0].View().Lease/2 + time.Second; took > bound {
			t.Errorf("suspended after %v, want less than %v", took, bound)
		}
	})
}

// A gateway that is kept out for its links does not keep its tokens out: they come
// back before it does, and before its lease has run out.
func TestKeptOutOwesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		gateways, old := missed(t, 6*time.Second, func() time.Duration { return time.Second }, config{})
		began := time.Now()
		suspended(t, gateways, old)
		until(t, "nothing is owed", func() bool { return len(poolOf(t, gateways[0], "p").Owed) == 0 })
		if m, in := gateways[0].View().Named("missed"); in {
			t.Errorf("%+v was let in first", m)
		}
		if took, wait := time.Since(began), gateways[0].View().LeaseWait(); took > wait {
			t.Errorf("nothing is owed after %v, the lease was over after %v", took, wait)
		}
	})
}

// TestReportsInTime: whenever a home looks, the report that it waits for is nearly late enough for a complaint. Its
// renewal goes out a little later, when the report may have come. So it complains of nobody, and nobody is suspended.
func TestReportsInTime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const lasts = time.Second
		gateways, stood := missed(t, lasts, func() time.Duration {
			time.Sleep(2 * time.Millisecond)
			return leader.MissingAfter(lease.Terms{Lease: lasts}) - time.Millisecond
		}, config{})
		time.Sleep(10 * lasts)
		if m, in := gateways[0].View().Named("missed"); !in || m.Node != stood.Node {
			t.Errorf("it was suspended; now it is %+v, in the view: %t", m, in)
		}
	})
}

// missed starts three gateways and one whose report does not reach the home of pool p,
// which begins an epoch. The home has waited for it for so long, whenever it looks.
func missed(t *testing.T, lasts time.Duration, waited func() time.Duration, conf config) (others []*gateway, stood Standing) {
	t.Helper()
	n := network{missing: func(g *gateway) map[kmutex.Node]time.Time {
		if p, ok := g.View().Pool("p"); ok {
			if self, in := g.Self(); in && p.Home == self {
				for _, m := range g.View().Members {
					if m.Name == "missed" && uint64(m.Node) <= p.Began {
						d := waited()
						return map[kmutex.Node]time.Time{m.Node: time.Now().Add(-d)}
					}
				}
			}
		}
		return nil
	}}
	others = n.leased(t, lasts, nil)
	settle(t, others)
	define(t, others[0], "p", 3)
	// It comes into the epoch by the next one.
	conf.expect, conf.joining, conf.join = 1, true, []string{others[0].gossip}
	g := n.start(t, "missed", conf)
	stood = g.stands()
	if err := others[0].Recover(t.Context(), "p", poolOf(t, g, "p").Epoch, Why{}); err != nil {
		t.Fatal(err)
	}
	if poolOf(t, others[0], "p").Home == stood.Node {
		t.Fatal("it is the home itself: give it another name")
	}
	return others, stood
}
