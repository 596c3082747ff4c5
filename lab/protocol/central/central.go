package central

import (
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// home is the node that keeps the line.
const home = 0

// Spec makes a central queue.
func Spec() protocol.Spec {
	return protocol.Spec{
		Name: "central", About: "a queue at one node, the home",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			return &queue{host: h, free: s.K, over: make([]map[protocol.Request]bool, s.Nodes)}, nil
		},
	}
}

type queue struct {
	host protocol.Host
	// At home.
	free    int
	waiting []request
	// over are, at each node, the requests whose cancel is on its way; a grant
	// that crosses it goes back.
	over []map[protocol.Request]bool
	pool []*message
}

type request struct {
	node    int
	request protocol.Request
}

type kind uint8

const (
	ask kind = iota
	grant
	release
	leave
)

var names = [...]string{"request", "grant", "release", "cancel"}

type message struct {
	kind    kind
	request protocol.Request
}

func (q *queue) send(from, to int, k kind, t protocol.Request) {
	if from == to {
		q.take(to, from, k, t)
		return
	}
	var m *message
	if n := len(q.pool); n > 0 {
		m = q.pool[n-1]
		q.pool = q.pool[:n-1]
	} else {
		m = new(message)
	}
	*m = message{k, t}
	q.host.Send(from, to, names[k], m)
}

func (q *queue) Deliver(to, from int, m any) {
	msg := m.(*message)
	q.take(to, from, msg.kind, msg.request)
	q.pool = append(q.pool, msg)
}

func (q *queue) take(to, from int, k kind, t protocol.Request) {
	switch k {
	case ask:
		q.waiting = append(q.waiting, request{from, t})
		q.serve()
	case release:
		q.free++
		q.serve()
	case leave:
		if i := slices.Index(q.waiting, request{from, t}); i >= 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		}
	case grant:
		if q.over[to][t] {
			delete(q.over[to], t)
			q.send(to, home, release, t)
			return
		}
		q.host.Grant(to, t)
	}
}

func (q *queue) serve() {
	for q.free > 0 && len(q.waiting) > 0 {
		r := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.free--
		q.send(home, r.node, grant, r.request)
	}
}

func (q *queue) Acquire(node int, t protocol.Request) {
	q.host.Found(0)
	q.send(node, home, ask, t)
}

func (q *queue) Release(node int, t protocol.Request) { q.send(node, home, release, t) }

func (q *queue) Cancel(node int, t protocol.Request) {
	if node != home {
		if q.over[node] == nil {
			q.over[node] = make(map[protocol.Request]bool)
		}
		q.over[node][t] = true
	}
	q.send(node, home, leave, t)
}

func (*queue) Due(int, sim.Timer) {}
