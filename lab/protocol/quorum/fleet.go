package quorum

import (
	"math/bits"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Form is one of the protocols.
type Form uint8

// The protocols.
const (
	Sigma Form = iota
	EndToEnd
	NonEndToEnd
)

// Options say which protocol, and for what.
type Options struct {
	Form Form
	// Resources are independent critical sections; 0: one.
	Resources int
	// Replicas of each resource, and the votes of them that it takes to enter; 0:
	// five replicas, a majority.
	Replicas, Quorum int
	// Announce lets an End-to-End owner that got the token tell all replicas.
	// Without it the first owner is told, who passes requests on.
	Announce bool
	// Poll lets Sigma's waiting clients ask again when their turn should have come
	// (informed back-off).
	Poll bool
	// Lease is how long a vote counts that is not renewed. 0: for ever, which is
	// right as long as no node is lost. It must be far longer than a message is on
	// its way from node to node, route and all.
	Lease time.Duration
	// Eager replicas vote although they have just lost their state or become
	// responsible; others wait for a lease first, until no vote of before counts.
	Eager bool
	// Prefix routes by prefixes of base 16, as in Pastry; else as in Chord.
	Prefix bool
	// Absent are nodes that are not there at the beginning.
	Absent []int

	// For searches of all states: the rounds that requests count up to, and how
	// often a client yields at most; 0: no limit.
	rounds, yields int
}

// Fleet is a protocol for all nodes of a run.
type Fleet struct {
	host     protocol.Host
	opt      Options
	delay    time.Duration
	overlay  *overlay
	nodes    []node
	replicas []replica
	// local are messages of a node to itself, which come before anything else.
	local   []letter
	handing bool
	changed bool // nodes have come or gone since the overlay was computed
}

// node is what a node knows besides the replicas that it is responsible for.
type node struct {
	clock   uint64
	clients map[int]*client // by resource
	entries map[key]entry   // what it keeps as part of a route
	past    map[int]past    // of its ownerships
}

// entry is a node's part of the route from an owner to a replica (the papers'
// replica list).
type entry struct {
	// holder and epoch are whose route it is. In the Non-End-to-End protocol that
	// is only whom the node believes to hold the replica.
	holder stamp
	owner  int
	epoch  uint64
	ended  bool
	// next and prev are the route's neighbours.
	next, prev int
	until      time.Duration
	line       []stamp // Non-End-to-End: a partial line
}

type letter struct {
	to int
	m  message
}

// Timers of a node. The argument is a client, see [Fleet.of], if nothing else is
// said.
const (
	timerYield uint8 = iota
	timerAsk
	timerRenew
	timerRepair // the argument is a key
)

// New makes a fleet.
func New(h protocol.Host, s protocol.Setup, opt Options) *Fleet {
	opt.Resources = max(opt.Resources, 1)
	if opt.Replicas == 0 {
		opt.Replicas = 5
	}
	if opt.Quorum == 0 {
		opt.Quorum = opt.Replicas/2 + 1
	}
	f := &Fleet{
		host: h, opt: opt, delay: max(s.Delay, time.Microsecond),
		overlay: newOverlay(s.Nodes, opt.Resources, opt.Replicas, opt.Absent, opt.Prefix), nodes: make([]node, s.Nodes),
		replicas: make([]replica, opt.Resources*opt.Replicas),
	}
	for i := range f.nodes {
		f.nodes[i] = newNode()
	}
	return f
}

func newNode() node {
	return node{clients: make(map[int]*client), entries: make(map[key]entry), past: make(map[int]past)}
}

// Responsible returns the nodes with the replicas of a resource.
func (f *Fleet) Responsible(resource int) []int {
	return f.overlay.place[resource*f.opt.Replicas:][:f.opt.Replicas]
}

// keys calls visit for every replica of a resource.
func (f *Fleet) keys(resource int, visit func(key)) {
	for j := range f.opt.Replicas {
		visit(key(resource*f.opt.Replicas + j))
	}
}

func (f *Fleet) resource(k key) int { return int(k) / f.opt.Replicas }

// base is about how long a question to a replica and its answer take.
func (f *Fleet) base() time.Duration {
	return time.Duration(bits.Len(uint(len(f.nodes)))+2) * f.delay
}

// send puts a message on its way to a node, which may be the sender.
func (f *Fleet) send(from, to int, m message) {
	if from == to {
		f.local = append(f.local, letter{to, m})
		return
	}
	m.clock = max(m.clock, f.nodes[from].clock)
	f.host.Send(from, to, names[m.kind], m)
}

// route sends a message of a node along the route to a replica.
func (f *Fleet) route(from int, m message) { f.local = append(f.local, letter{from, m}) }

// settle takes in what nodes have sent themselves.
func (f *Fleet) settle() {
	if f.handing {
		return
	}
	f.handing = true
	for len(f.local) > 0 {
		l := f.local[0]
		f.local = slices.Delete(f.local, 0, 1)
		f.take(l.to, l.to, l.m)
	}
	f.handing = false
}

// Deliver implements [sim.Handler].
func (f *Fleet) Deliver(to, from int, m any) {
	f.follow()
	f.take(to, from, m.(message))
	f.settle()
}

// take lets a node take in a message.
func (f *Fleet) take(at, from int, m message) {
	n := &f.nodes[at]
	n.clock = max(n.clock, m.clock)
	if m.kind < kind(len(routed)) && routed[m.kind] {
		f.pass(at, from, m)
		return
	}
	switch m.kind {
	case response:
		f.answered(at, m)
	case enqueue:
		f.enqueued(at, m)
	case token:
		f.handed(at, m)
	case retry:
		f.refused(at, m)
	case moved:
		f.ownerMoved(at, m)
	case end:
		f.ended(at, m)
	default: // goes to a replica
	}
}

// pass lets a node do its part of a route: stop the message, take it in as the
// responsible node, or forward it.
func (f *Fleet) pass(at, from int, m message) {
	if f.overlay.place[m.key] == at {
		if m.kind == request {
			f.host.Found(m.hops)
		}
		if f.opt.Form == EndToEnd {
			f.endToEndReplica(at, m)
		} else {
			f.replica(at, m)
		}
		return
	}
	next, stop := f.overlay.next(at, m.key), false
	switch f.opt.Form {
	case EndToEnd:
		next, stop = f.endToEndRoute(at, from, next, &m)
	case NonEndToEnd:
		next, stop = f.nonEndToEndRoute(at, from, next, &m)
	case Sigma:
	}
	if stop {
		f.host.Found(m.hops)
		return
	}
	m.hops++
	f.send(at, next, m)
}

// Due implements [sim.Handler].
func (f *Fleet) Due(at int, t sim.Timer) {
	f.follow()
	if t.Kind == timerRepair {
		f.repair(at, key(t.Arg))
		f.settle()
		return
	}
	c, resource := f.of(at, t.Arg)
	if c == nil {
		return
	}
	switch t.Kind {
	case timerYield:
		f.giveUp(at, resource, c)
	case timerAsk:
		f.askAgain(at, resource, c)
	case timerRenew:
		f.renew(at, resource, c)
	}
	f.settle()
}

// of returns the client that a timer is about, nil if its request is over.
func (f *Fleet) of(at int, arg uint64) (*client, int) {
	resource, ts := int(arg>>40), arg&(1<<40-1)
	if c := f.nodes[at].clients[resource]; c != nil && c.req.TS == ts {
		return c, resource
	}
	return nil, 0
}

func (f *Fleet) after(at, resource int, c *client, d time.Duration, kind uint8) {
	f.host.After(at, d, sim.Timer{Kind: kind, Arg: uint64(resource)<<40 | c.req.TS})
}
