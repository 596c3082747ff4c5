package elmp

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/protocol"
)

// Options of the tree.
type Options struct {
	// Order is how many children a node may have when another one joins below
	// it; 0: 2.
	Order int
	// Lazy lets a node join right below the node that it knows.
	Lazy bool
	// patience is how long an offer to a newcomer is good: it may have left.
	patience time.Duration
}

// Spec makes the protocol with a binary tree.
func Spec() protocol.Spec { return With("elmp", Options{}) }

// With makes the protocol with another tree.
func With(name string, o Options) protocol.Spec {
	o.Order = cmp.Or(o.Order, 2)
	return protocol.Spec{
		Name: name, About: "Naimi-Trehel with joins and leaves (seed 004)",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K != 1 {
				return nil, errors.New("elmp: there is one token, k = 1")
			}
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol { return newSystem(h, s, o) }), nil
		},
	}
}

const none = -1

// system is all nodes.
type system struct {
	host  protocol.Host
	nodes []*node
}

// newSystem arranges the first members as a complete tree; node 0 is the root and
// has the token.
func newSystem(h protocol.Host, s protocol.Setup, o Options) *system {
	y := &system{host: h, nodes: make([]*node, s.Nodes)}
	o.patience = 8 * s.Delay
	for i := range y.nodes {
		n := &node{host: h, options: o, self: i, parent: none, next: none, owner: none, by: none, offered: none}
		y.nodes[i] = n
		if i >= s.Members {
			continue
		}
		n.in, n.token = true, i == 0
		if i > 0 {
			n.parent = (i - 1) / o.Order
			p := y.nodes[n.parent]
			p.children = append(p.children, i)
		}
	}
	return y
}

// node is one process.
type node struct {
	host    protocol.Host
	options Options
	self    int
	in      bool // it is in the system
	leaving bool
	// The tree. The children change only on behalf of the owner.
	parent   int // none: it is the root
	children []int
	turn     int // which child gets the next newcomer
	offered  int // the newcomer that has an offer; none
	offers   uint64
	// The token and the queue.
	request protocol.Request // of the own request; 0: none
	inside  bool
	token   bool
	next    int
	// owner is the node whose operation this one is part of: the paper's
	// Requesting and Exiting if that is itself, else Busy or Blocked.
	owner   int
	waiting []operation
	// ahead is the owner's operation if it has gone on to the parent.
	ahead *operation
	// held: this node becomes the root in place of a node that leaves, and not all of its new
	// children know it yet.
	held bool
	// Of the own operation.
	path    []int
	awaited int // acknowledgements
	// by is the node that has replaced this node as the root, and waits until all its children
	// know it.
	by int
}

// operation waits for a node, or goes on to the next.
type operation struct {
	kind  kind
	age   protocol.Request // the lowest goes first
	owner int
	from  int   // the child that it came from; none: it begins here
	path  []int // the nodes that it has
}

type kind uint8

const (
	request kind = iota
	exit
	adopt // of the newcomer owner
)

// Messages.
type (
	// step takes an operation to the parent.
	step struct{ operation }
	// reached says that the operation has what it needs: the whole path to the
	// root, or for an exit the parent.
	reached struct {
		kind     kind
		root     int
		children []int // of the root
		path     []int
	}
	// replaced tells the old root its new place.
	replaced struct {
		parent   int
		children []int
		orphans  int // children that have to acknowledge their new parent to it
	}
	// parent names a child's new parent. The child acknowledges it to the old
	// one: what it sent there before has arrived then.
	parent struct{ node, old int }
	// child exchanges one child for another.
	child struct{ old, new int }
	// inherit gives a neighbour what the leaving node had.
	inherit struct {
		children []int
		root     bool
	}
	ack struct{}
	// free says that the operation is over. It goes along the path from below, so
	// that a node is free before its parent is: only then can another operation
	// change its parent. With an empty path it is back at the owner.
	free struct {
		path  []int
		owner int
	}
	token struct{}
	// Newcomers.
	join   struct{ node int }
	offer  struct{}
	reply  struct{ yes bool }
	enroll struct{ node int } // a newcomer is passed on to a child
)

// Acquire implements [protocol.Protocol].
func (y *system) Acquire(i int, t protocol.Request) {
	n := y.nodes[i]
	n.request = t
	n.begin(request)
}

// begin starts an operation of the node itself, when it is its turn.
func (n *node) begin(k kind) {
	if k == request && n.parent == none && n.token {
		n.enter()
		return
	}
	n.waiting = append(n.waiting, operation{kind: k, age: n.request, owner: n.self, from: none})
	n.take()
}

func (n *node) enter() {
	n.inside = true
	n.host.Grant(n.self, n.request)
}

// take lets operations that wait go on, as long as the node is free: the oldest
// first. One that came before the news that its node is a child now has to wait
// for that.
func (n *node) take() {
	for n.in && n.owner == none && !n.held {
		first := -1
		for i, o := range n.waiting {
			if (o.from == none || slices.Contains(n.children, o.from)) && (first < 0 || o.age < n.waiting[first].age) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		o := n.waiting[first]
		n.waiting = slices.Delete(slices.Clone(n.waiting), first, first+1)
		if o.kind == adopt {
			n.adopt(o.owner)
			continue
		}
		n.owner = o.owner
		o.path = append(slices.Clip(o.path), n.self)
		n.proceed(o)
	}
}

// proceed takes an operation that has this node further up.
func (n *node) proceed(o operation) {
	if n.parent == none || o.kind == exit && n.self != o.owner {
		r := reached{kind: o.kind, root: n.self, children: n.children, path: o.path}
		if n.self == o.owner {
			n.reached(r)
			return
		}
		n.host.Send(n.self, o.owner, "reached", r)
		return
	}
	n.ahead = &o
	o.from = n.self
	n.host.Send(n.self, n.parent, "request", step{o})
}

// moved is told of a new parent, by the owner of an operation that ends. An
// operation of somebody else, which waits for the old one, goes to the new one.
func (n *node) moved(by int, m parent) {
	n.parent = m.node
	n.host.Send(n.self, m.old, "ack", ack{})
	if n.ahead != nil && n.owner != by {
		n.proceed(*n.ahead)
	}
}

// reached completes the own operation.
func (n *node) reached(r reached) {
	n.path, n.awaited = r.path, 0
	switch {
	case r.kind == exit:
		n.exit()
	case r.root == n.self: // it became the root meanwhile, and has been served
		n.release()
	default:
		n.host.Found(len(r.path) - 1)
		n.exchange(r)
	}
}

// exchange puts this node into the root's place and the root into its own.
func (n *node) exchange(r reached) {
	above, below := n.parent, n.children
	old := replaced{parent: above, children: below}
	n.parent, n.children = none, slices.Clone(r.children)
	if above == r.root {
		old.parent = n.self
		n.children = append(slices.DeleteFunc(n.children, func(c int) bool { return c == n.self }), r.root)
	} else {
		n.send(above, "child", child{old: n.self, new: r.root})
	}
	for _, c := range below {
		n.send(c, "parent", parent{r.root, n.self})
	}
	for _, c := range n.children {
		if c != r.root {
			old.orphans++
			n.host.Send(n.self, c, "parent", parent{n.self, r.root})
		}
	}
	n.send(r.root, "replaced", old)
}

// send is a message that has to be acknowledged.
func (n *node) send(to int, name string, m any) {
	n.awaited++
	n.host.Send(n.self, to, name, m)
}

// replaced is the old root's part: the token, if it does not need it, goes to the
// new one.
func (n *node) replaced(by int, r replaced) {
	n.parent, n.children = r.parent, r.children
	n.by = by
	n.awaited += r.orphans
	n.complete()
	if n.token && !n.inside && n.request == 0 {
		n.token = false
		n.host.Send(n.self, by, "token", token{})
		return
	}
	n.next = by
}

// acknowledged is told that somebody has taken over a change. What a former child
// has waiting here has gone to its new parent.
func (n *node) acknowledged(from int) {
	n.waiting = slices.DeleteFunc(slices.Clone(n.waiting), func(o operation) bool { return o.from != none && o.from == from })
	n.awaited--
	n.complete()
}

// complete goes on when all have acknowledged.
func (n *node) complete() {
	switch {
	case n.awaited != 0:
	case n.by != none:
		n.host.Send(n.self, n.by, "ack", ack{})
		n.by = none
	default:
		n.release()
	}
}

// release frees what the own operation has, itself last.
func (n *node) release() {
	others := without(n.path, n.self)
	n.path = nil
	if len(others) == 0 {
		n.finish()
		return
	}
	f := free{path: others, owner: n.self}
	f.next(n)
	if n.leaving && n.request == 0 && !n.hasBegun(exit) {
		n.left()
	}
}

// next passes the message on.
func (f free) next(n *node) {
	to := f.owner
	if len(f.path) > 0 {
		to, f.path = f.path[0], f.path[1:]
	}
	n.host.Send(n.self, to, "free", f)
}

// finish ends the own operation.
func (n *node) finish() {
	n.owner, n.ahead = none, nil
	n.take()
}

// freed is told by the owner, or by the root whose place this node has.
func (n *node) freed(f free) {
	switch {
	case f.owner == n.self:
		n.finish()
		return
	case n.held:
		n.held = false
		if n.ahead != nil {
			n.proceed(*n.ahead) // it waited for the old root
		}
	default:
		n.owner, n.ahead = none, nil
		f.next(n)
	}
	n.take()
}

// hasBegun reports whether an own operation still waits.
func (n *node) hasBegun(k kind) bool {
	return slices.ContainsFunc(n.waiting, func(o operation) bool { return o.kind == k && o.owner == n.self })
}

// Release implements [protocol.Protocol].
func (y *system) Release(i int, _ protocol.Request) {
	n := y.nodes[i]
	n.inside, n.request = false, 0
	if n.next != none {
		n.host.Send(i, n.next, "token", token{})
		n.next, n.token = none, false
	}
	if n.leaving {
		n.begin(exit)
	}
}

// Deliver implements [sim.Handler].
func (y *system) Deliver(to, from int, m any) {
	n := y.nodes[to]
	switch m := m.(type) {
	case step:
		n.waiting = append(n.waiting, m.operation)
		n.take()
	case reached:
		n.reached(m)
	case ack:
		n.acknowledged(from)
	case free:
		n.freed(m)
	case token:
		n.token = true
		n.enter()
	case replaced:
		n.replaced(from, m)
	case parent:
		n.moved(from, m)
	case child:
		n.children = append(without(n.children, m.old), m.new)
		n.host.Send(to, from, "ack", ack{})
	case inherit:
		n.inherit(from, m)
		n.host.Send(to, from, "ack", ack{})
	default:
		n.newcomer(from, m)
	}
}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*system) Cancel(int, protocol.Request) {}

func without(list []int, i int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(have int) bool { return have == i })
}

var (
	_ protocol.Protocol = (*system)(nil)
	_ protocol.Moving   = (*system)(nil)
)
