package token

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Spec makes the protocol for a network in which no message takes longer than
// bound; 0: four times the mean delay.
func Spec(bound time.Duration) protocol.Spec {
	return protocol.Spec{
		Name: "token-fd", About: "one token with its queue, a failure detector, and a new token after a crash (seed 001)",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K != 1 {
				return nil, errors.New("token: there is one token, k = 1")
			}
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol {
				return newSystem(h, s, cmp.Or(bound, 4*s.Delay))
			}), nil
		},
	}
}

// system is all nodes.
type system struct {
	host  protocol.Host
	bound time.Duration
	nodes []*node
}

func newSystem(h protocol.Host, s protocol.Setup, bound time.Duration) *system {
	y := &system{host: h, bound: bound, nodes: make([]*node, s.Nodes)}
	for i := range y.nodes {
		y.nodes[i] = y.newNode(i)
	}
	y.nodes[0].status = have
	return y
}

func (y *system) newNode(i int) *node {
	return &node{sys: y.host, bound: y.bound, self: i, reported: nobody, down: make([]bool, len(y.nodes)), told: make([]time.Duration, len(y.nodes))}
}

// status is what a node does: the paper's Norm, Try, HaveToken, inCS and Wait.
type status uint8

const (
	norm status = iota
	try
	have
	inside
	regenerating
)

const nobody = -1

// stamp orders knowledge of the token: hop grows each time the token is passed on, epoch each time a new
// token is made.
type stamp struct{ epoch, hop uint64 }

func (s stamp) after(o stamp) bool {
	return s.epoch > o.epoch || s.epoch == o.epoch && s.hop > o.hop
}

// node is one process.
type node struct {
	sys    protocol.Host
	bound  time.Duration
	self   int
	status status
	own    protocol.Request // of the own request; 0: none
	// holder is who had the token at the stamp, as far as this node knows.
	holder int
	stamp  stamp
	// queue travels with the token; at another node it holds requests that came
	// before the token.
	queue []waiter
	down  []bool
	told  []time.Duration // when the detector last told of the crash of each node

	// Recovery.
	reported   int // to whom the loss of the token was reported
	poll       *poll
	polls      uint64
	pollers    []int // nodes that ask whether the token is lost
	recovering bool  // after a restart: does not know the holder yet
	unheard    []int // from whom an answer about the holder is due
}

type waiter struct {
	node    int
	request protocol.Request
}

// Messages.
type (
	// request of a waiter. Its sender believes that the receiver has, or will
	// have, the token of this stamp.
	request struct {
		waiter
		stamp stamp
	}
	// pointer tells the token's holder (the paper's OK). With again, a waiting node repeats its
	// request.
	pointer struct {
		holder int
		stamp  stamp
		again  bool
	}
	pass struct {
		queue []waiter
		stamp stamp
	}
)

// Acquire implements [protocol.Protocol]: figure 3.1, lines 9-12.
func (y *system) Acquire(i int, t protocol.Request) {
	n := y.nodes[i]
	n.own = t
	if n.status == have {
		n.enter()
		return
	}
	n.status = try
	n.ask()
}

// ask sends the own request to where the token should be.
func (n *node) ask() {
	switch {
	case n.recovering: // when the holder is known
	case n.lost():
		n.report()
	default:
		n.sys.Send(n.self, n.holder, "request", request{waiter{n.self, n.own}, n.stamp})
	}
}

// lost reports that the token cannot be where this node knows it to be.
func (n *node) lost() bool { return !n.holds() && (n.holder == n.self || n.down[n.holder]) }

// holds reports whether the node has the valid token.
func (n *node) holds() bool { return n.status >= have && n.holder == n.self }

func (n *node) enter() {
	n.status = inside
	n.sys.Grant(n.self, n.own)
}

// Release implements [protocol.Protocol]: lines 26-33.
func (y *system) Release(i int, _ protocol.Request) {
	n := y.nodes[i]
	n.own = 0
	if !n.holds() {
		n.status = norm // its token was replaced by a newer one
		return
	}
	n.status = have
	n.hand()
}

// hand passes an unused token on.
func (n *node) hand() {
	if n.status != have || len(n.queue) == 0 {
		return
	}
	next, rest := n.queue[0], n.queue[1:]
	n.stamp.hop++
	n.holder, n.queue, n.status = next.node, nil, norm
	if n.own != 0 {
		n.status = try // it has made the token and waits behind older requests
	}
	n.sys.Send(n.self, next.node, "token", pass{rest, n.stamp})
	for _, w := range rest { // they have to monitor the new holder
		if w.node != n.self {
			n.sys.Send(n.self, w.node, "ok", pointer{holder: next.node, stamp: n.stamp})
		}
	}
}

// Deliver implements [sim.Handler].
func (y *system) Deliver(to, from int, m any) {
	n := y.nodes[to]
	switch m := m.(type) {
	case request:
		n.request(m, 0)
	case pointer:
		n.pointer(m)
	case pass:
		n.token(m)
	default:
		n.recovery(from, m)
	}
}

// request is lines 13-20.
func (n *node) request(r request, hops int) {
	switch {
	case n.down[r.node]:
	case n.holds():
		n.sys.Found(hops)
		n.enqueue(r.waiter)
		if n.status == have {
			n.hand()
			return
		}
		n.sys.Send(n.self, r.node, "ok", pointer{holder: n.self, stamp: n.stamp})
	case n.recovering || r.stamp.after(n.stamp):
		n.enqueue(r.waiter) // the token is on its way to here
	default:
		n.forward(r)
	}
}

// forward sends a request after the token, and tells its node where that is.
func (n *node) forward(r request) {
	if r.node == n.self {
		return
	}
	if !n.lost() && n.holder != r.node {
		n.sys.Send(n.self, n.holder, "request", request{r.waiter, n.stamp})
	}
	n.sys.Send(n.self, r.node, "ok", pointer{holder: n.holder, stamp: n.stamp})
}

func (n *node) enqueue(w waiter) {
	i := slices.IndexFunc(n.queue, func(have waiter) bool { return have.node == w.node })
	switch {
	case n.down[w.node] || w.node == n.self && n.status != regenerating:
	case i >= 0:
		n.queue[i].request = w.request
	default:
		n.queue = append(slices.Clip(n.queue), w)
	}
}

// pointer is lines 21-22.
func (n *node) pointer(p pointer) {
	if p.stamp.after(n.stamp) || p.again && p.stamp == n.stamp {
		n.holder, n.stamp = p.holder, p.stamp
	}
	if p.again {
		n.reported = nobody
	}
	if n.status == try && (p.again || n.lost()) {
		n.ask()
	}
}

// token is lines 23-25.
func (n *node) token(p pass) {
	if p.stamp.epoch < n.stamp.epoch {
		return // a newer token was made
	}
	early := n.queue
	n.stamp, n.holder, n.reported, n.queue = p.stamp, n.self, nobody, nil
	for _, w := range slices.Concat(p.queue, early) {
		n.enqueue(w)
	}
	for _, c := range n.pollers {
		n.sys.Send(n.self, c, "found", found{n.stamp})
	}
	n.pollers = nil
	if n.poll != nil {
		n.poll = nil
		n.everybody("ok", pointer{holder: n.self, stamp: n.stamp, again: true})
	}
	if n.status == try {
		n.enter()
		return
	}
	n.status = have // its request was served already
	n.hand()
}

// everybody sends a message to all living nodes.
func (n *node) everybody(kind string, m any) {
	for i, down := range n.down {
		if i != n.self && !down {
			n.sys.Send(n.self, i, kind, m)
		}
	}
}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*system) Cancel(int, protocol.Request) {}

var (
	_ protocol.Protocol   = (*system)(nil)
	_ protocol.Detecting  = (*system)(nil)
	_ protocol.Restarting = (*system)(nil)
	_ sim.Handler         = (*system)(nil)
)
