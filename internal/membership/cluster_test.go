package membership

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

func TestAloneIsReadyAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		began := time.Now()
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		took := time.Since(began)
		t.Logf("ready after %v", took)
		if took > 300*time.Millisecond {
			t.Errorf("ready after %v, want less than 300ms", took)
		}
		if node, ok := g.Self(); !ok || node == 0 {
			t.Errorf("Self() = %v, %v", node, ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.DefinePool(ctx, Pool{Name: "p", K: 3, Binding: admission.BindingLate}); err != nil {
			t.Fatal(err)
		}
		p, _ := g.View().Pool("p")
		self, _ := g.Self()
		want := Pool{Name: "p", K: 3, Binding: admission.BindingLate, Epoch: 1, Began: p.Began, Home: self, Reclaim: admission.ReclaimLease}
		if !reflect.DeepEqual(p, want) || p.Began <= uint64(self) {
			t.Errorf("pool %+v, want %+v", p, want)
		}
	})
}

func TestThreeAgree(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		began := time.Now()
		gateways := n.three(t, nil)
		for _, g := range gateways {
			g.ready()
		}
		took := time.Since(began)
		t.Logf("three ready after %v", took)
		if took > 3*time.Second {
			t.Errorf("three ready after %v, want less than 3s", took)
		}
		agree(t, gateways, "a", "b", "c")
	})
}

func TestFourthJoins(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.leased(t, 5*time.Second, nil) // a busy machine suspends nobody
		define(t, gateways[0], "p", 3)
		agree(t, gateways, "a", "b", "c")
		before := gateways[0].View()
		old, _ := before.Pool("p")

		d := n.start(t, "d", config{expect: 1, lease: 5 * time.Second, joining: true, join: []string{gateways[1].gossip}})
		d.ready()
		gateways = append(gateways, d)
		agree(t, gateways, "a", "b", "c", "d")
		now := d.View()
		if now.Number != before.Number+1 {
			t.Errorf("view %d after view %d, want one more", now.Number, before.Number)
		}
		if p, _ := now.Pool("p"); !reflect.DeepEqual(p, old) {
			t.Errorf("a join changed the pool from %+v to %+v", old, p)
		}
	})
}

func TestTwoDefineOnePool(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		agree(t, gateways, "a", "b", "c")
		var wg sync.WaitGroup
		for i, g := range gateways {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := g.DefinePool(ctx, Pool{Name: "p", K: 10 + i, Binding: admission.BindingLate}); err != nil {
					t.Errorf("%s: %v", g.name, err)
				}
				if _, ok := g.View().Pool("p"); !ok {
					t.Errorf("%s: DefinePool returned before its view has the pool", g.name)
				}
			})
		}
		wg.Wait()
		agree(t, gateways, "a", "b", "c")
		p, _ := gateways[0].View().Pool("p")
		if p.K < 10 || p.K > 12 || p.Epoch != 1 {
			t.Errorf("pool %+v", p)
		}
		home, _ := gateways[0].View().Named(gateways[0].View().Ring().Owner("p"))
		if p.Home != home.Node {
			t.Errorf("home %d, want the owner's node %d", p.Home, home.Node)
		}
	})
}

func TestRefusesBadPools(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		for _, p := range []Pool{{}, {Name: "p", Binding: admission.BindingLate}, {Name: "p", K: 1, Binding: "never"}, {Name: "p", K: kmutex.MaxK + 1, Binding: admission.BindingLate}} {
			if err := g.DefinePool(t.Context(), p); !errors.Is(err, ErrCommand) {
				t.Errorf("DefinePool(%+v) = %v, want ErrCommand", p, err)
			}
		}
		if err := g.SetK(t.Context(), "nobody", 3, 0, 0); !errors.Is(err, ErrCommand) {
			t.Errorf("SetK of an unknown pool: %v", err)
		}
	})
}

func TestLeaderKilled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		for _, g := range gateways {
			g.ready()
		}
		define(t, gateways[0], "p", 3)
		dead := leaderOf(t, gateways)
		dead.kill()
		began := time.Now()
		var left []*gateway
		for _, g := range gateways {
			if g != dead {
				left = append(left, g)
			}
		}
		define(t, left[0], "q", 1)
		t.Logf("first commit after the leader's loss: %v", time.Since(began))
		d := n.start(t, "d", config{expect: 1, joining: true, join: []string{left[0].gossip, left[1].gossip}})
		d.ready()
		left = append(left, d)
		var names []string
		for _, g := range left {
			names = append(names, g.name)
		}
		agree(t, left, names...) // the lost one is suspended
		// Its vote goes to the newcomer, since it is lost for longer than SwapAfter.
		until(t, "the newcomer votes", func() bool {
			s := leaderOf(t, left).stats()
			return len(s.Voters) == 3 && slices.Contains(s.Voters, d.stats().Server)
		})
	})
}

func TestReturnsFromDisk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		root := t.TempDir()
		dirs := func(name string) string { return filepath.Join(root, name) }
		gateways := n.three(t, dirs)
		define(t, gateways[0], "p", 3)
		agree(t, gateways, "a", "b", "c")
		before := gateways[0].View()
		for _, g := range gateways {
			g.kill()
		}
		// All return at once, at other addresses: nothing else is left of before
		// than what is on disk.
		gateways = n.three(t, dirs)
		began := time.Now()
		for _, g := range gateways {
			g.ready()
		}
		t.Logf("three back from disk after %v", time.Since(began))
		agree(t, gateways, "a", "b", "c")
		now := gateways[0].View()
		if now.Cluster != before.Cluster || now.Number <= before.Number {
			t.Errorf("view %d of cluster %s after view %d of cluster %s", now.Number, now.Cluster, before.Number, before.Cluster)
		}
		for _, m := range now.Members {
			if _, same := before.Member(m.Node); same {
				t.Errorf("%s is node %d as before: it must be a new incarnation", m.Name, m.Node)
			}
		}
		if p, ok := now.Pool("p"); !ok || p.K != 3 || p.Epoch < 2 {
			t.Errorf("pool %+v, %v: want k 3 in a later epoch", p, ok)
		}
		if s := gateways[0].stats(); len(s.Voters) != 3 {
			t.Errorf("voters %v, want the three of before", s.Voters)
		}
	})
}

func TestAloneReturnsFromDisk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dir := t.TempDir()
		g := n.start(t, "a", config{expect: 1, dir: dir})
		g.ready()
		define(t, g, "p", 3)
		before, _ := g.Self()
		g.kill()
		began := time.Now()
		g = n.start(t, "a", config{expect: 1, dir: dir})
		g.ready()
		t.Logf("back from disk after %v", time.Since(began))
		if now, _ := g.Self(); now <= before {
			t.Errorf("node %d after node %d", now, before)
		}
		if p, ok := g.View().Pool("p"); !ok || p.Epoch != 2 {
			t.Errorf("pool %+v, %v: want epoch 2", p, ok)
		}
	})
}

func TestRestartInMemoryIsNewIncarnation(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		define(t, gateways[0], "p", 3)
		agree(t, gateways, "a", "b", "c")
		follower := gateways[0]
		for _, g := range gateways {
			if g.stats().Role != "leader" {
				follower = g
			}
		}
		old := follower.stats().Server
		before, _ := follower.View().Named(follower.name)
		oldPool, _ := follower.View().Pool("p")
		follower.kill()
		conf := follower.config
		for _, g := range gateways {
			conf.join = append(conf.join, g.gossip)
		}
		conf.expect = 3
		back := n.start(t, follower.name, conf) // same addresses, before anybody noticed
		back.ready()
		gateways[slices.Index(gateways, follower)] = back
		agree(t, gateways, "a", "b", "c")
		now, _ := back.View().Named(back.name)
		if now.Node <= before.Node || now.Boot == before.Boot {
			t.Errorf("%+v after %+v", now, before)
		}
		if p, _ := back.View().Pool("p"); p.Epoch != oldPool.Epoch+1 {
			t.Errorf("epoch %d after %d", p.Epoch, oldPool.Epoch)
		}
		until(t, "three voters, the old server gone", func() bool {
			s := leaderOf(t, gateways).stats()
			return len(s.Voters) == 3 && !slices.Contains(s.Voters, old)
		})
	})
}

func TestLeave(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.three(t, nil)
				for _, g := range gateways {
					g.ready()
				}
				define(t, gateways[0], "p", 3)
				agree(t, gateways, "a", "b", "c")
				// Down to one: the last step is from two, of which one votes.
				for len(gateways) > 1 {
					leader := leaderOf(t, gateways)
					going := leader
					for _, g := range gateways {
						if who == "follower" && g != leader {
							going = g
						}
					}
					epoch := poolOf(t, leader, "p").Epoch
					began := time.Now()
					going.leave()
					t.Logf("%s left after %v", who, time.Since(began))
					gateways = slices.DeleteFunc(gateways, func(g *gateway) bool { return g == going })
					var names []string
					for _, g := range gateways {
						names = append(names, g.name)
					}
					agree(t, gateways, names...)
					p := poolOf(t, gateways[0], "p")
					home, ok := gateways[0].View().Member(p.Home)
					if p.Epoch != epoch+1 || !ok {
						t.Errorf("pool %+v after epoch %d, home %+v", p, epoch, home)
					}
					define(t, gateways[0], going.name, 1)
				}
				if s := gateways[0].stats(); len(s.Voters) != 1 || s.Role != "leader" {
					t.Errorf("the last one: %+v", s)
				}
			})
		})
	}
}

func TestSevenGateways(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		for _, name := range []string{"d", "e", "f", "g"} {
			gateways = append(gateways, n.start(t, name, config{expect: 1, joining: true, join: []string{gateways[0].gossip}}))
		}
		for _, g := range gateways {
			g.ready()
		}
		agree(t, gateways, "a", "b", "c", "d", "e", "f", "g")
		until(t, "5 voters", func() bool {
			s := leaderOf(t, gateways).stats()
			return len(s.Voters) == 5
		})
		define(t, gateways[6], "p", 3)
		agree(t, gateways, "a", "b", "c", "d", "e", "f", "g")
	})
}

func define(t testing.TB, g *gateway, name string, k int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := g.DefinePool(ctx, Pool{Name: name, K: k, Binding: admission.BindingLate}); err != nil {
		t.Fatalf("%s: %v; %+v", g.name, err, g.stats())
	}
}

func poolOf(t testing.TB, g *gateway, name string) Pool {
	t.Helper()
	p, ok := g.View().Pool(name)
	if !ok {
		t.Fatalf("%s: no pool %s", g.name, name)
	}
	return p
}
