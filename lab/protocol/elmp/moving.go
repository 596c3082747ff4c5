package elmp

import (
	"slices"

	"github.com/kgate/kgate/lab/sim"
)

// Leave implements [protocol.Moving]: a request of the node's own comes first.
func (y *system) Leave(i int) {
	n := y.nodes[i]
	n.leaving = true
	if n.request == 0 {
		n.begin(exit)
	}
}

// In implements [protocol.Moving].
func (y *system) In(i int) bool { return y.nodes[i].in }

// exit gives away what a leaving node has. It has its parent, if it is not the root.
func (n *node) exit() {
	heir := n.parent
	if heir == none {
		if len(n.children) == 0 { // the last one stays until there is another
			n.path, n.owner = nil, none
			n.take()
			return
		}
		heir = n.children[0]
		n.path = append(n.path, heir)
	}
	mine := without(n.children, heir)
	for _, c := range mine {
		n.send(c, "parent", parent{heir, n.self})
	}
	n.send(heir, "inherit", inherit{children: mine, root: n.parent == none})
	n.token, n.children = false, nil
}

// inherit is the neighbour's part.
func (n *node) inherit(from int, m inherit) {
	n.children = append(without(n.children, from), m.children...)
	if !m.root {
		return
	}
	n.parent, n.token, n.held = none, true, true
	if n.request != 0 { // it need not go anywhere to ask
		n.waiting = slices.DeleteFunc(slices.Clone(n.waiting), func(o operation) bool { return o.owner == n.self && o.kind == request })
		n.enter()
	}
}

// left ends the life of a node. A newcomer that waits here asks again.
func (n *node) left() {
	n.in, n.leaving = false, false
	n.waiting = nil
}

// Join implements [protocol.Moving]. It may be called again if nobody answers.
func (y *system) Join(i, via int) {
	n := y.nodes[i]
	if !n.in {
		*n = node{host: n.host, options: n.options, self: i, parent: none, next: none, owner: none, by: none, offered: none}
		n.host.Send(i, via, "join", join{i})
	}
}

// newcomer takes in the messages about nodes that join.
func (n *node) newcomer(from int, m any) {
	switch m := m.(type) {
	case join:
		n.join(m.node)
	case enroll:
		n.enroll(m.node)
	case offer:
		yes := !n.in
		if yes {
			n.in, n.parent = true, from
		}
		n.host.Send(n.self, from, "reply", reply{yes})
	case reply:
		if n.offered != from {
			return
		}
		if m.yes {
			n.children = append(slices.Clip(n.children), from)
		}
		n.owner, n.offered = none, none
		if n.leaving && n.request == 0 && !n.hasBegun(exit) {
			n.begin(exit) // it was the last one
		}
		n.take()
	}
}

// join passes a newcomer on to the root.
func (n *node) join(i int) {
	if n.parent != none && !n.options.Lazy {
		n.host.Send(n.self, n.parent, "join", join{i})
		return
	}
	n.enroll(i)
}

func (n *node) enroll(i int) {
	n.waiting = append(n.waiting, operation{kind: adopt, owner: i, from: none})
	n.take()
}

// adopt offers a newcomer a place below this node, or passes it on to a child.
func (n *node) adopt(i int) {
	if n.options.Lazy || len(n.children) < n.options.Order {
		n.owner, n.offered = n.self, i
		n.offers++
		n.host.Send(n.self, i, "offer", offer{})
		n.host.After(n.self, n.options.patience, sim.Timer{Arg: n.offers})
		return
	}
	n.turn = (n.turn + 1) % len(n.children)
	n.host.Send(n.self, n.children[n.turn], "enroll", enroll{i})
}

// Due implements [sim.Handler]: an offer was not answered.
func (y *system) Due(i int, t sim.Timer) {
	if n := y.nodes[i]; n.offered != none && n.offers == t.Arg {
		n.owner, n.offered = none, none
		n.take()
	}
}
