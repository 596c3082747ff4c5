package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A leader whose entries do not reach the others, though its heartbeats do, leads no more
// after a while.
func TestEntriesOfTheLeaderAreLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		settle(t, gateways)
		leads := leaderOf(t, gateways)
		others := without(gateways, leads)
		n.narrows(leads, others)
		began := time.Now()
		define(t, others[0], strings.Repeat("long", 60), 3)
		took := time.Since(began)
		t.Logf("agreed after %v", took)
		if took > 5*time.Second {
			t.Errorf("agreed after %v", took)
		}
		if leaderOf(t, others) == leads {
			t.Error("it leads still")
		}
		n.heal()
		settle(t, gateways)
	})
}

// A gateway that could come in, but for a path that loses long packets, stays out: to a
// member and from one.
func TestNarrowPathKeepsOut(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint("from the newcomer ", comes), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.three(t, nil)
				settle(t, gateways)
				odd, lead := followerOf(t, gateways), leaderOf(t, gateways)
				one := without(gateways, odd, lead)[0]
				if comes {
					n.narrows(odd, []*gateway{one})
				} else {
					n.narrows(one, []*gateway{odd})
				}
				lost := odd.stands()
				n.mu.Lock()
				n.disconnect(n.between(odd, one))
				n.mu.Unlock()
				if err := lead.Suspend(t.Context(), odd.name); err != nil {
					t.Fatal(err)
				}
				suspended(t, without(gateways, odd), lost)
				for range 40 {
					time.Sleep(lead.View().Lease / 20)
					if _, in := lead.View().Named(odd.name); in {
						t.Fatal("it is in")
					}
				}
				n.heal()
				settle(t, gateways)
			})
		})
	}
}

// Who can forge what gossip says of addresses stops nobody who is in.
func TestForgedAddresses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		const lease = 2 * time.Second
		three := n.leased(t, lease, nil)
		settle(t, three)
		before := make(map[*gateway]Standing)
		for _, g := range three {
			before[g] = g.stands()
		}
		n.rumours.forged.Store(true)
		n.rumours.mu.Lock()
		n.rumours.tell()
		n.rumours.mu.Unlock()
		time.Sleep(lease / 5)
		for i, a := range three { // connections that are open would do for long
			for _, b := range three[i+1:] {
				n.block(a, b)
			}
		}
		n.heal()
		for range 40 {
			time.Sleep(lease / 20)
			for _, g := range three {
				if s := g.Standing(); !s.Valid(time.Now()) || s.Node != before[g].Node {
					t.Fatalf("%s has lost its lease", g.name)
				}
			}
		}
		define(t, followerOf(t, three), "p", 3)
	})
}

// That a gateway leaves is only its own word, over the peer port. Gossip can be forged, and then
// its tokens would be given to others while its requests run.
func TestGossipTakesNobodyOut(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		three := n.three(t, nil)
		settle(t, three)
		lead, victim := leaderOf(t, three), followerOf(t, three)
		before := victim.stands().Node
		if err := victim.agent.Leave(); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			time.Sleep(usualLease / 20)
			if m, in := lead.View().Named(victim.name); !in || m.Node != before || len(lead.View().Lost) > 0 {
				t.Fatalf("gossip alone took node %d out: %+v", before, lead.View())
			}
		}
	})
}
