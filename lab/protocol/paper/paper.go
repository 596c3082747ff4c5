package paper

import (
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Options are the parts of the paper that can be left out.
type Options struct {
	// Rewrite points a node's parent at the node that a child message or the privilege names.
	Rewrite bool
	// Replicas is p, how many successors keep each node's state; 0: section 5 is left out.
	Replicas int
}

// Spec makes the protocol under a name.
func Spec(name string, o Options) protocol.Spec {
	return protocol.Spec{
		Name: name, About: "the paper's algorithm as printed (seed 003)",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol { return newSystem(h, s, o) }), nil
		},
	}
}

const nobody = -1

// node is the paper's process, table 1.
type node struct {
	token, requesting, inside bool
	parent, next, child       int
	coordinator               bool
	tails                     []int // token_locations
	counter                   int

	own    protocol.Request
	orphan bool // its own client was lost with its peer
}

type kind uint8

const (
	request kind = iota
	child
	privilege
	token
)

var names = [...]string{"request", "child", "token_locations", "token"}

// letter is a message of a node to a node, wherever they live.
type letter struct {
	to      int
	kind    kind
	r, hops int
	tails   []int
	counter int
}

// outcome is what follows from a change of a node's state.
type outcome struct {
	letters []letter
	enters  bool
}

func newNode(i, k int) node {
	n := node{token: i < k, next: nobody, child: nobody}
	if i == 0 {
		n.parent, n.coordinator = nobody, true
		for q := range k {
			n.tails = append(n.tails, q)
		}
	}
	return n
}

func (o *outcome) send(l letter) { o.letters = append(o.letters, l) }

// ask is Request CS.
func (n *node) ask(self int, o *outcome) {
	n.requesting = true
	if n.token {
		n.inside, o.enters = true, true
		return
	}
	p := n.parent
	n.parent = nobody
	o.send(letter{to: p, kind: request, r: self})
}

// release is Release CS.
func (n *node) release(o *outcome) {
	n.inside, n.requesting, n.own = false, false, 0
	if n.child != nobody {
		o.send(letter{to: n.child, kind: token})
		n.child, n.token = nobody, false
	}
}

// receive takes a letter in.
func (s *system) receive(self int, l letter, o *outcome) {
	n := &s.nodes[self]
	switch l.kind {
	case request:
		switch {
		case n.parent != nobody:
			o.send(letter{to: n.parent, kind: request, r: l.r, hops: l.hops + 1})
		case n.coordinator:
			s.host.Found(l.hops)
			s.assign(self, l.r, o)
		default:
			s.host.Found(l.hops)
			n.next = l.r
		}
		n.parent = l.r
	case privilege:
		n.coordinator, n.tails, n.counter = true, l.tails, l.counter
		if r := n.next; r != nobody {
			n.next = nobody
			if s.options.Rewrite {
				n.parent = r
			}
			s.assign(self, r, o)
		}
	case child:
		s.follow(self, l.r, o)
	case token:
		n.token = true
		if n.orphan {
			n.release(o)
			return
		}
		n.inside, o.enters = true, true
	}
}

// assign puts r behind the next of the k queues and passes the privilege on.
func (s *system) assign(self, r int, o *outcome) {
	n := &s.nodes[self]
	tails, q := n.tails, n.counter
	n.coordinator, n.tails, n.counter = false, nil, 0
	tail := tails[q]
	if tail == self {
		s.follow(self, r, o)
	} else {
		o.send(letter{to: tail, kind: child, r: r})
	}
	tails = slices.Clone(tails)
	tails[q] = r
	o.send(letter{to: r, kind: privilege, tails: tails, counter: (q + 1) % len(tails)})
}

// follow is Process Child.
func (s *system) follow(self, r int, o *outcome) {
	n := &s.nodes[self]
	if s.options.Rewrite {
		n.parent = r
	}
	if n.requesting {
		n.child = r
		return
	}
	n.token = false
	o.send(letter{to: r, kind: token})
}

// Due implements [sim.Handler].
func (*system) Due(int, sim.Timer) {}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*system) Cancel(int, protocol.Request) {}
