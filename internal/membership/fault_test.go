package membership

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// five starts gateways a to e; all vote once they are settled.
func (n *network) five(t testing.TB) []*gateway {
	t.Helper()
	var gateways []*gateway
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		conf := config{expect: 5}
		if len(gateways) > 0 {
			conf.join = []string{gateways[0].gossip}
		}
		gateways = append(gateways, n.start(t, name, conf))
	}
	settle(t, gateways)
	return gateways
}

// settle waits until all stand and agree.
func settle(t testing.TB, gateways []*gateway) {
	t.Helper()
	names := make([]string, len(gateways))
	for i, g := range gateways {
		g.stands()
		names[i] = g.name
	}
	agree(t, gateways, names...)
}

func without(gateways []*gateway, out ...*gateway) []*gateway {
	return slices.DeleteFunc(slices.Clone(gateways), func(g *gateway) bool { return slices.Contains(out, g) })
}

func followerOf(t testing.TB, gateways []*gateway) *gateway {
	t.Helper()
	return without(gateways, leaderOf(t, gateways))[0]
}

// suspended waits until all see that the incarnation is lost, and tells how
// long that took.
func suspended(t testing.TB, gateways []*gateway, lost Standing) time.Duration {
	t.Helper()
	began := time.Now()
	for _, g := range gateways {
		until(t, g.name+" sees the loss", func() bool { _, gone := g.View().LostMember(lost.Node); return gone })
	}
	return time.Since(began)
}

// A killed gateway is suspended at once, what it owes comes back when its lease
// has run out, and nobody else loses its standing meanwhile.
func TestKilled(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.leased(t, 2*time.Second, nil)
				define(t, gateways[0], "p", 3)
				settle(t, gateways)
				dead := followerOf(t, gateways)
				if who == "leader" {
					dead = leaderOf(t, gateways)
				}
				left := without(gateways, dead)
				var before []Standing
				for _, g := range left {
					before = append(before, g.Standing())
				}
				old := dead.stands()
				dead.kill()
				began := time.Now()
				took := suspended(t, left, old)
				t.Logf("%s killed, all see it suspended after %v", who, took)
				if bound := 1500 * time.Millisecond; took > bound {
					t.Errorf("suspended after %v, want less than %v", took, bound)
				}
				for _, g := range left {
					l, _ := g.View().LostMember(old.Node)
					if !strings.Contains(l.Reason, ", reported by ") {
						t.Errorf("%s sees the reason %q", g.name, l.Reason)
					}
				}
				p := poolOf(t, left[0], "p")
				if !slices.Equal(p.Owed, []kmutex.Node{old.Node}) || p.Epoch != 2 {
					t.Errorf("%+v, want node %d owed in epoch 2", p, old.Node)
				}
				if successor, ok := left[0].View().Successor(old.Node); !ok || successor == old.Node {
					t.Errorf("successor %d, %v", successor, ok)
				}
				for _, g := range left {
					until(t, "it is expired", func() bool { p := poolOf(t, g, "p"); return len(p.Owed) == 0 && p.Epoch >= 3 })
				}
				took = time.Since(began)
				t.Logf("expired after %v, the lease is %v", took, left[0].View().Lease)
				if bound := left[0].View().Lease*11/10 + time.Second; took > bound {
					t.Errorf("expired after %v, want less than %v", took, bound)
				}
				if early := old.Until.Sub(began) + left[0].View().Lease/10; took < early {
					t.Errorf("expired after %v, while its lease may run for %v", took, early)
				}
				for i, g := range left {
					if now := g.stands(); now.Node != before[i].Node {
						t.Errorf("%s is node %d, was %d", g.name, now.Node, before[i].Node)
					}
				}
			})
		})
	}
}

// A gateway that is cut off loses its standing no later than it is called
// expired, and comes back as another incarnation that has nothing owed.
func TestIsolated(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.three(t, nil)
				define(t, gateways[0], "p", 3)
				settle(t, gateways)
				alone := followerOf(t, gateways)
				if who == "leader" {
					alone = leaderOf(t, gateways)
				}
				left := without(gateways, alone)
				old := alone.stands()
				for _, g := range left {
					n.block(alone, g)
				}
				began := time.Now()
				t.Logf("%s cut off, the others see it suspended after %v", who, suspended(t, left, old))
				for _, g := range left {
					until(t, "it is expired", func() bool {
						if len(poolOf(t, g, "p").Owed) > 0 {
							return false
						}
						if s := alone.Standing(); s.Valid(time.Now()) {
							t.Errorf("%s stands as node %d when its lease is called expired", alone.name, s.Node)
						}
						return true
					})
				}
				t.Logf("expired after %v", time.Since(began))
				n.heal()
				began = time.Now()
				settle(t, gateways)
				t.Logf("whole %v after healing", time.Since(began))
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("whole %v after healing, want less than 3s", took)
				}
				if now := alone.Standing(); now.Node <= old.Node {
					t.Errorf("node %d after node %d", now.Node, old.Node)
				}
				if p := poolOf(t, alone, "p"); len(p.Owed) != 0 {
					t.Errorf("%+v owes something", p)
				}
			})
		})
	}
}

// A gateway that comes back after it has voided everything owes nothing, even
// before its old lease has run out.
func TestRejoinOwesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		define(t, gateways[0], "p", 3)
		settle(t, gateways)
		g, other := followerOf(t, gateways), leaderOf(t, gateways)
		old := g.stands()
		began := time.Now()
		if err := other.Suspend(t.Context(), g.name); err != nil {
			t.Fatal(err)
		}
		until(t, "it is back", func() bool { now := g.Standing(); return now.Node > old.Node && now.Valid(time.Now()) })
		took := time.Since(began)
		t.Logf("back as another incarnation after %v", took)
		if took > g.View().Lease {
			t.Errorf("back after %v, later than its old lease", took)
		}
		for _, g := range gateways {
			until(t, "nothing is owed", func() bool { return len(poolOf(t, g, "p").Owed) == 0 })
		}
		if l, _ := g.View().LostMember(old.Node); l.Leased || l.Reason != "an operator took it out, at "+other.name {
			t.Errorf("%+v", l)
		}
		if took := time.Since(began); took > g.View().Lease {
			t.Errorf("nothing owed after %v, later than its old lease", took)
		}
		settle(t, gateways)
	})
}

// Without Rejoin a gateway that was suspended stays out: nobody knows what it
// has in flight.
func TestNobodyIsLetInAsBefore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 1})
		b := n.start(t, "b", config{expect: 1, joining: true, join: []string{a.gossip}, stays: true})
		old := b.stands()
		if err := a.Suspend(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		until(t, "it knows", func() bool { return b.Standing() == Standing{} })
		until(t, "expired", func() bool { l, _ := a.View().LostMember(old.Node); return !l.Leased })
		if names := a.names(); len(names) != 1 || (b.Standing() != Standing{}) {
			t.Errorf("members %v, standing %+v", names, b.Standing())
		}
		b.Rejoin()
		b.Rejoin() // once is enough
		if now := b.stands(); now.Node <= old.Node {
			t.Errorf("node %d after node %d", now.Node, old.Node)
		}
	})
}

// Two that cannot reach each other do not stay in one view, however well both
// reach everybody else; who is out stays out until they do.
func TestBridge(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.five(t)
		two := without(gateways, leaderOf(t, gateways))[:2]
		n.block(two[0], two[1])
		began := time.Now()
		var out *gateway
		until(t, "one of them is out", func() bool {
			for _, g := range two {
				if _, in := leaderOf(t, gateways).View().Named(g.name); !in {
					out = g
					return true
				}
			}
			return false
		})
		t.Logf("%s is out after %v, %v", out.name, time.Since(began), out.Standing())
		rest := without(gateways, out)
		settle(t, rest)
		number := rest[0].View().Number
		stay := time.Now().Add(2 * rest[0].View().Lease)
		until(t, "some time has passed", func() bool {
			if _, in := rest[0].View().Named(out.name); in {
				t.Fatalf("%s is in again, and cannot reach %v", out.name, two)
			}
			return time.Now().After(stay)
		})
		if now := rest[0].View().Number; now > number+1 { // one more: expired
			t.Errorf("view %d after view %d: something goes on", now, number)
		}
		n.heal()
		began = time.Now()
		settle(t, gateways)
		t.Logf("whole %v after healing", time.Since(began))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("whole %v after healing", took)
		}
	})
}

// Halves of 2 and 3: the three go on, the two lose their standing and come
// back, each as another incarnation, when they can.
func TestHalves(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.five(t)
		define(t, gateways[0], "p", 3)
		leader := leaderOf(t, gateways)
		minority := []*gateway{leader, without(gateways, leader)[0]}
		majority := without(gateways, minority...)
		var old []Standing
		for _, a := range minority {
			old = append(old, a.stands())
			for _, b := range majority {
				n.block(a, b)
			}
		}
		began := time.Now()
		for i := range minority {
			suspended(t, majority, old[i])
		}
		t.Logf("both suspended after %v", time.Since(began))
		for _, g := range majority {
			until(t, "both are expired", func() bool {
				if len(poolOf(t, g, "p").Owed) > 0 {
					return false
				}
				for _, m := range minority {
					if m.Standing().Valid(time.Now()) {
						t.Errorf("%s stands when it is called expired", m.name)
					}
				}
				return true
			})
			g.stands()
		}
		t.Logf("epoch %d when both are expired, of 1 before", poolOf(t, majority[0], "p").Epoch)
		n.heal()
		began = time.Now()
		settle(t, gateways)
		t.Logf("whole %v after healing", time.Since(began))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("whole %v after healing", took)
		}
	})
}

// A restart under the same name, before anybody has noticed: the old
// incarnation is suspended, not forgotten.
func TestRestartOwes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.leased(t, 3*time.Second, nil) // nobody loses its own to a busy machine
		define(t, gateways[0], "p", 3)
		settle(t, gateways)
		g := followerOf(t, gateways)
		old := g.stands()
		g.kill()
		conf := g.config
		for _, other := range gateways {
			conf.join = append(conf.join, other.gossip)
		}
		began := time.Now()
		back := n.start(t, g.name, conf)
		gateways[slices.Index(gateways, g)] = back
		now := back.stands()
		if p := poolOf(t, back, "p"); !slices.Contains(p.Owed, old.Node) || now.Node <= old.Node {
			t.Errorf("node %d after node %d, pool %+v", now.Node, old.Node, p)
		}
		if took := time.Since(began); now.Until.Sub(began) <= 0 || took > back.View().Lease {
			t.Errorf("stands after %v", took)
		}
		until(t, "expired", func() bool { return len(poolOf(t, back, "p").Owed) == 0 })
		if took := time.Since(began); took < old.Until.Sub(began) {
			t.Errorf("expired after %v, while the lease runs", took)
		}
	})
}
