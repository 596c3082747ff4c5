package suzukikasami

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Spec makes the algorithm.
func Spec() protocol.Spec {
	return protocol.Spec{
		Name: "suzuki-kasami", About: "one token, requests are broadcast",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			if s.K != 1 {
				return nil, errors.New("suzukikasami: there is one token, k = 1")
			}
			return protocol.Serial(h, s.Nodes, func(h protocol.Host) protocol.Protocol { return newSystem(h, s.Nodes) }), nil
		},
	}
}

type system struct {
	host  protocol.Host
	nodes []node
}

type node struct {
	request   protocol.Request // of the own request; 0: none
	inside    bool
	requested []uint64 // RN: the newest request of each node
	token     *token   // nil: elsewhere
}

// token is what travels.
type token struct {
	served []uint64 // LN: the newest request of each node that was served
	queue  []int
}

// request is the n-th one of its sender.
type request struct{ n uint64 }

func newSystem(h protocol.Host, nodes int) *system {
	y := &system{host: h, nodes: make([]node, nodes)}
	for i := range y.nodes {
		y.nodes[i].requested = make([]uint64, nodes)
	}
	y.nodes[0].token = &token{served: make([]uint64, nodes)}
	return y
}

func (y *system) Acquire(i int, t protocol.Request) {
	n := &y.nodes[i]
	n.request = t
	n.requested[i]++
	y.host.Found(0)
	if n.token != nil {
		y.enter(i)
		return
	}
	for other := range y.nodes {
		if other != i {
			y.host.Send(i, other, "request", request{n.requested[i]})
		}
	}
}

func (y *system) enter(i int) {
	y.nodes[i].inside = true
	y.host.Grant(i, y.nodes[i].request)
}

func (y *system) Release(i int, _ protocol.Request) {
	n := &y.nodes[i]
	n.request, n.inside = 0, false
	n.token.served[i] = n.requested[i]
	y.hand(i)
}

// hand extends the queue by those who wait and passes the token to its head.
func (y *system) hand(i int) {
	n := &y.nodes[i]
	for j := range y.nodes {
		if n.requested[j] == n.token.served[j]+1 && !slices.Contains(n.token.queue, j) {
			n.token.queue = append(n.token.queue, j)
		}
	}
	if len(n.token.queue) == 0 {
		return
	}
	t, next := n.token, n.token.queue[0]
	t.queue = slices.Clone(t.queue[1:])
	n.token = nil
	y.host.Send(i, next, "token", t)
}

func (y *system) Deliver(to, from int, m any) {
	n := &y.nodes[to]
	switch m := m.(type) {
	case request:
		n.requested[from] = max(n.requested[from], m.n)
		if n.token != nil && !n.inside {
			y.hand(to)
		}
	case *token:
		n.token = m
		y.enter(to)
	}
}

// Cancel implements [protocol.Protocol]; see [protocol.Serial].
func (*system) Cancel(int, protocol.Request) {}

func (*system) Due(int, sim.Timer) {}
