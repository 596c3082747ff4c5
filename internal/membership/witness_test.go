package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Two gateways and a witness survive the loss of any one, and its return.
func TestTwoAndAWitness(t *testing.T) {
	for _, lost := range []string{"a", "b", "w"} {
		t.Run(lost, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				all := n.twoAndAWitness(t)
				a, b := all[0], all[1]
				define(t, a, "p", 3)
				settle(t, all)
				until(t, "a gateway that serves leads", func() bool { return leaderOf(t, all).name != "w" })
				before := poolOf(t, a, "p").Epoch
				one := named(all, lost)
				left := without(all, one)
				nodes := []kmutex.Node{left[0].stands().Node, left[1].stands().Node}
				began := time.Now()
				one.kill()
				suspended(t, left, one.Standing())
				until(t, "nothing is owed", func() bool { return len(poolOf(t, left[0], "p").Owed) == 0 })
				t.Logf("%s killed: nothing is owed after %v", lost, time.Since(began).Round(time.Millisecond))
				if lost == "w" && poolOf(t, b, "p").Epoch != before {
					t.Error("the loss of the witness begins an epoch")
				}
				for i, g := range left {
					if now := g.stands().Node; now != nodes[i] {
						gone, _ := g.View().LostMember(nodes[i])
						t.Errorf("%s was node %d and is node %d: %q", g.name, nodes[i], now, gone.Reason)
					}
				}
				view, home := left[0].View(), poolOf(t, left[0], "p").Home
				if !slices.ContainsFunc(view.Serving(), func(m Member) bool { return m.Node == home }) {
					t.Errorf("home is node %d", home)
				}
				back := n.start(t, lost, config{expect: 3, join: []string{left[0].gossip}, lease: left[0].View().Lease, witness: lost == "w"})
				settle(t, append(left, back))
			})
		})
	}
}

// A link between a gateway and the witness may be broken for ever: nobody is
// suspended, and a gateway leads that reaches both.
func TestWitnessNeedsNoLinks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		all := n.twoAndAWitness(t)
		a, w := all[0], all[2]
		settle(t, all)
		until(t, "a gateway that serves leads", func() bool { return leaderOf(t, all).name != "w" })
		node := a.stands().Node
		n.block(a, w)
		until(t, "b leads, or a does and w has another incarnation", func() bool {
			leader := leaderOf(t, all)
			return leader.name != "w" && leader.Standing().Valid(time.Now())
		})
		for end := time.Now().Add(5 * a.View().Lease); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if now := a.stands().Node; now != node {
				lost, suspended := all[1].View().LostMember(node)

				t.Fatalf("a was node %d and is node %d; suspended: %t, %q; the leader is %s", node, now, suspended, lost.Reason, leaderOf(t, all).name)
			}
		}
	})
}

func (n *network) twoAndAWitness(t *testing.T) []*gateway {
	t.Helper()
	const lease = 2 * time.Second // nobody loses its own to a busy machine
	a := n.start(t, "a", config{expect: 3, lease: lease})
	b := n.start(t, "b", config{expect: 3, lease: lease, join: []string{a.gossip}})
	w := n.start(t, "w", config{expect: 3, lease: lease, join: []string{a.gossip}, witness: true})
	return []*gateway{a, b, w}
}

func named(gateways []*gateway, name string) *gateway {
	return gateways[slices.IndexFunc(gateways, func(g *gateway) bool { return g.name == name })]
}
