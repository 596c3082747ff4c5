package paper

import (
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// system is all peers, with the nodes that they answer for.
type system struct {
	host    protocol.Host
	options Options
	nodes   []node
	at      []int  // by node: its peer; nobody: the state is lost
	gone    []bool // by peer

	// With replicas.
	flights []*flight // messages on their way, in order
	steps   []*step   // changes that wait for answers, in order
	local   []flight  // messages of peers to their own nodes
}

// flight is a letter on its way to a peer.
type flight struct {
	letter
	peer int
}

// step is a change of a node's state that its successors do not all have yet.
type step struct {
	node    int
	awaited []int
	outcome outcome
}

// Messages between peers: a change, and the answer to it.
type (
	replicate struct{ *step }
	ack       struct{ *step }
)

func newSystem(h protocol.Host, setup protocol.Setup, o Options) *system {
	s := &system{host: h, options: o, nodes: make([]node, setup.Nodes), at: make([]int, setup.Nodes), gone: make([]bool, setup.Nodes)}
	for i := range s.nodes {
		s.nodes[i], s.at[i] = newNode(i, setup.K), i
	}
	return s
}

// Acquire implements [protocol.Protocol].
func (s *system) Acquire(i int, t protocol.Request) {
	var o outcome
	s.nodes[i].own = t
	s.nodes[i].ask(i, &o)
	s.change(i, o)
	s.settle()
}

// Release implements [protocol.Protocol].
func (s *system) Release(i int, _ protocol.Request) {
	var o outcome
	s.nodes[i].release(&o)
	s.change(i, o)
	s.settle()
}

// Deliver implements [sim.Handler].
func (s *system) Deliver(to, from int, m any) {
	switch m := m.(type) {
	case *flight:
		if i := slices.Index(s.flights, m); i >= 0 {
			s.flights = slices.Delete(s.flights, i, i+1)
		}
		s.local = append(s.local, *m)
	case replicate:
		s.host.Send(to, from, "ack", ack(m))
	case ack:
		m.awaited = slices.DeleteFunc(m.awaited, func(p int) bool { return p == from })
		s.complete()
	}
	s.settle()
}

// settle takes in what has arrived.
func (s *system) settle() {
	for len(s.local) > 0 {
		f := s.local[0]
		s.local = slices.Delete(s.local, 0, 1)
		if s.at[f.to] != nobody { // else nobody has the state that the letter is for
			var o outcome
			s.receive(f.to, f.letter, &o)
			s.change(f.to, o)
		}
	}
}

// change lets the successors of a node have its new state, and then what follows from it happen.
func (s *system) change(i int, o outcome) {
	st := &step{node: i, outcome: o}
	for j := 1; j <= min(s.options.Replicas, len(s.nodes)-1); j++ {
		if p := (i + j) % len(s.nodes); !s.gone[p] && p != s.at[i] {
			st.awaited = append(st.awaited, p)
		}
	}
	if len(st.awaited) == 0 {
		s.happen(st)
		return
	}
	s.steps = append(s.steps, st)
	for _, p := range st.awaited {
		s.host.Send(s.at[i], p, "replicate", replicate{st})
	}
}

// complete goes on with the changes that all successors have.
func (s *system) complete() {
	for i := 0; i < len(s.steps); {
		st := s.steps[i]
		if len(st.awaited) > 0 {
			i++
			continue
		}
		s.steps = slices.Delete(s.steps, i, i+1)
		s.happen(st)
	}
}

func (s *system) happen(st *step) {
	peer := s.at[st.node]
	if peer == nobody {
		return
	}
	for _, l := range st.outcome.letters {
		s.post(peer, l)
	}
	switch n := &s.nodes[st.node]; {
	case !st.outcome.enters:
	case n.orphan:
		s.leave(st.node)
	default:
		s.host.Grant(st.node, n.own)
	}
}

func (s *system) post(from int, l letter) {
	peer := s.at[l.to]
	switch peer {
	case nobody:
	case from:
		s.local = append(s.local, flight{l, peer})
	default:
		f := &flight{l, peer}
		if s.options.Replicas > 0 {
			s.flights = append(s.flights, f)
		}
		s.host.Send(from, peer, names[l.kind], f)
	}
}

// leave ends the critical section of a node whose client is lost.
func (s *system) leave(i int) {
	var o outcome
	s.nodes[i].release(&o)
	s.change(i, o)
}

// Down implements [protocol.Detecting]: the ring closes over a lost peer, and its successor takes over.
func (s *system) Down(_, lost int) {
	if s.gone[lost] {
		return
	}
	s.gone[lost] = true
	next := lost
	for s.gone[next] {
		if next = (next + 1) % len(s.nodes); next == lost {
			return
		}
	}
	var taken []int
	for i, peer := range s.at {
		switch {
		case peer != lost:
		case (next-i+len(s.nodes))%len(s.nodes) > s.options.Replicas:
			s.at[i] = nobody
		default:
			s.at[i] = next
			taken = append(taken, i)
		}
	}
	late := s.flights
	s.flights = nil
	for _, f := range late {
		if f.peer == lost {
			s.local = append(s.local, flight{f.letter, next})
		} else {
			s.flights = append(s.flights, f)
		}
	}
	for _, st := range s.steps {
		if st.awaited = slices.DeleteFunc(st.awaited, func(p int) bool { return p == lost }); slices.Contains(taken, st.node) {
			st.awaited = nil // the answers went to the lost peer; its successor knows that all have the change
		}
	}
	var inside []int // whose clients were in the critical section
	for _, i := range taken {
		enters := slices.ContainsFunc(s.steps, func(st *step) bool { return st.node == i && st.outcome.enters })
		if n := &s.nodes[i]; !n.orphan {
			n.orphan = true
			if n.inside && !enters {
				inside = append(inside, i)
			}
		}
	}
	s.complete()
	for _, i := range inside {
		s.leave(i)
	}
	s.settle()
}

var (
	_ protocol.Protocol  = (*system)(nil)
	_ protocol.Detecting = (*system)(nil)
	_ sim.Handler        = (*system)(nil)
)
