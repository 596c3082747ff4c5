package kmutex

import (
	"cmp"
	"errors"
	"slices"
)

// This file holds the tree and the line: requests that reverse paths, batches,
// and the baton that goes along them.

// onRequest handles another node's search for the last in line (Process
// Request).
func (m *Machine) onRequest(msg *Message) error {
	if msg.Origin == 0 || msg.Origin == m.self {
		return errors.New("impossible origin")
	}
	if !msg.Seat.IsZero() && (msg.Seat.Node != msg.Origin || msg.Seat.Serial == 0) {
		return errors.New("a seat of another node than the origin")
	}
	place := Place{Node: msg.Origin, Batch: msg.Batch, Seat: msg.Seat}
	switch {
	case m.parent != 0: // not the last: forward, and reverse the path
		forward := *msg
		forward.Hops++
		m.fx.Send(m.parent, forward)
		m.fx.Note(Trace{Kind: TraceForwarded, Node: msg.Origin, Count: int(forward.Hops)})
		m.parent = msg.Origin
		return nil
	case len(m.batches) > 0: // the last: the origin comes after my last batch
		m.batches[len(m.batches)-1].Next = place
		m.retryLater()
	case m.baton: // the last and nobody waits: the origin is served next
		m.pass(place, false)
	default:
		panic("kmutex: last in line with neither batch nor baton")
	}
	m.parent = msg.Origin
	m.fx.Note(Trace{Kind: TraceQueued, Node: msg.Origin, Count: int(msg.Hops)})
	return nil
}

// onBaton makes this node the coordinator (Process Token Locations).
func (m *Machine) onBaton(from Node, msg *Message) error {
	switch {
	case m.baton:
		return errors.New("a second baton")
	case msg.Number <= m.number:
		return errors.New("a baton that was here before")
	}
	at := m.find(msg.Batch)
	if at < 0 || slices.ContainsFunc(m.batches[:at], func(b Batch) bool { return !b.Leaves }) {
		return errors.New("a baton that nobody here has asked for")
	}
	if err := m.binding.CheckBaton(msg); err != nil {
		return err
	}
	m.batches = m.batches[at:]
	m.baton, m.number = true, msg.Number
	m.binding.Arrive(msg, &m.fx)
	m.binding.Return(m.offered, &m.fx) // the baton is at the end of the line
	m.offered = nil
	m.fx.Note(Trace{Kind: TraceBatonReceived, Node: from, Number: msg.Number})
	return nil
}

// serve assigns tokens while the baton is here and requests wait here, and passes the baton on
// when its batch is served.
func (m *Machine) serve() {
	for m.baton && len(m.batches) > 0 {
		batch := &m.batches[0]
		batch.Requests = batch.Requests[m.binding.Assign(batch.Requests, &m.fx):]
		if len(batch.Requests) > 0 {
			return // no free token
		}
		next := batch.Next
		m.batches[0] = Batch{}
		m.batches = m.batches[1:]
		switch next.Node {
		case 0:
			return // nobody behind: idle coordinator
		case m.self:
			m.batches = m.batches[m.find(next.Batch):]
			m.binding.Return(m.offered, &m.fx) // the baton has come to where they rest
			m.offered = nil
		default:
			m.pass(next, true)
		}
	}
}

// find returns the index of the batch with a number; -1: there is none.
func (m *Machine) find(number uint64) int {
	at, ok := slices.BinarySearchFunc(m.batches, number, func(b Batch, n uint64) int { return cmp.Compare(b.Number, n) })
	if !ok {
		return -1
	}
	return at
}

// pass hands the baton to the batch next. waited: next stood behind a batch of this node; else it
// has just asked.
func (m *Machine) pass(next Place, waited bool) {
	m.number++
	baton := Message{Kind: KindBaton, Number: m.number, Batch: next.Batch}
	m.binding.Depart(next, waited, &baton, &m.fx)
	m.baton = false
	m.fx.Send(next.Node, baton)
	m.fx.Note(Trace{Kind: TraceBatonSent, Node: next.Node, Number: m.number})
}

// pump moves pending requests into a batch.
func (m *Machine) pump() {
	switch {
	case len(m.pending) == 0:
	case m.baton && len(m.batches) == 0: // nobody waits: only those join a batch who lack a token
		if left := m.pending[m.binding.Assign(m.pending, &m.fx):]; len(left) > 0 {
			m.open(slices.Clone(left))
		}
		m.pending = m.pending[:0]
	case m.parent == 0: // the last in line: join the open batch
		batch := &m.batches[len(m.batches)-1]
		batch.Requests = append(batch.Requests, m.pending...)
		m.pending = m.pending[:0]
		m.serve()
	case len(m.batches) == 0, !m.asked && m.binding.Asks():
		// A node without a batch in the line asks at once, so that the first request need not wait for the
		// interval. If all requests give up soon, most messages come from this.
		m.ask()
	}
}

// ask makes a batch of all pending requests and looks for its place in line
// (Request CS).
func (m *Machine) ask() {
	requests := m.pending
	m.pending = nil
	m.fx.Note(Trace{Kind: TraceAsked, Node: m.parent, Count: len(requests)})
	seat, taken := m.binding.Ask(requests, &m.fx)
	m.open(requests[taken:])
	m.fx.Send(m.parent, Message{Kind: KindRequest, Origin: m.self, Batch: m.numbered, Seat: seat})
	m.parent = 0
	m.asked = true
	m.fx.AskTimer = true
}

// open adds a batch to which later requests of this node can come.
func (m *Machine) open(requests []Request) {
	m.numbered++
	m.batches = append(m.batches, Batch{Number: m.numbered, Requests: requests})
}

// retryLater begins a retry interval, unless one is running.
func (m *Machine) retryLater() {
	if m.binding.Asks() {
		m.fx.RetryTimer, m.retrying = m.fx.RetryTimer || !m.retrying, true
	}
}

// enterIdle grants this node's idle tokens to its oldest waiting requests, if no other request
// waits for the tokens.
func (m *Machine) enterIdle() {
	for {
		oldest := m.oldest()
		if oldest == nil || !m.binding.Enter((*oldest)[0], &m.fx) {
			return
		}
		*oldest = (*oldest)[1:]
	}
}

// oldest returns the queue whose first request is the oldest that the binding has not taken over;
// nil: no such request waits.
func (m *Machine) oldest() *[]Request {
	for i := range m.batches {
		if len(m.batches[i].Requests) > 0 {
			return &m.batches[i].Requests
		}
	}
	if len(m.pending) > 0 {
		return &m.pending
	}
	return nil
}
