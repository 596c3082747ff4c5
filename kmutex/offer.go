package kmutex

import (
	"errors"
	"slices"
)

// This file handles tokens that a node cannot use because their upstream is down for it (late
// binding). The coordinator offers them to the batch behind its own, and so on along the line to
// the first request that can use one. Tokens that no request can use stop at the last batch and go
// home after the retry interval; home sends them to the coordinator, which offers them again.
//
// All requests of a batch may leave, or be served by offers, before the baton comes. Such a batch
// leaves the line: it tells the batch before it what is behind it, and that passes it by from then on.
// Which batch is before it, it learns from offers; in a line that stands for longer than the retry
// interval each batch tells the one behind it by an offer of no tokens, and again when another one is
// behind it. So neither offers nor the baton go a long way along batches in which nobody waits.

// waitAgain puts a request that could not use its token ahead of this node's others.
func (m *Machine) waitAgain(t Request) {
	first := &m.pending
	if i := slices.IndexFunc(m.batches, func(b Batch) bool { return !b.Skipped }); i >= 0 {
		first = &m.batches[i].Requests
	}
	*first = append([]Request{t}, *first...)
	m.fx.Note(Trace{Kind: TraceReturned, Request: t})
}

// onOffer takes in tokens that no batch ahead of this node's could use.
func (m *Machine) onOffer(msg *Message) error {
	if err := m.binding.TakeOffer(msg); err != nil {
		return err
	}
	left, at := msg.Free, m.find(msg.Batch)
	if at < 0 || at == 0 && m.baton { // the baton has passed that batch, or is there
		m.binding.Return(left, &m.fx)
		return nil
	}
	before := Place{Node: msg.Origin, Batch: msg.Other}
	if before.IsZero() && !m.batches[at].Skipped {
		return errors.New("a batch that has not left is out of the line")
	}
	if len(left) == 0 {
		m.put(at, before)
		return nil
	}
	m.batches[at].Before = before
	if m.baton { // what this node can use goes to its oldest batch
		m.binding.Return(left, &m.fx)
		left = m.binding.Shed()
	} else {
		left = m.useUpTo(at, left)
	}
	m.moveOn(left, at)
	return nil
}

// onSkip has a batch of this node pass by the one behind it, in which nobody waits.
func (m *Machine) onSkip(from Node, msg *Message) error {
	at := m.find(msg.Batch)
	if at < 0 {
		return nil // the baton has passed that batch
	}
	left, next := Place{Node: from, Batch: msg.Number}, Place{Node: msg.Origin, Batch: msg.Other}
	switch behind := next.Node != m.self || m.find(next.Batch) > at; {
	case next.Node == 0 || next.Batch == 0, !behind && !m.batches[at].Skipped && m.batches[at].leadsTo(left):
		return errors.New("a skip to a batch that is not behind")
	case behind: // else next is out of the line, and so is what this message is about
		m.passBy(at, left, next)
	}
	return nil
}

// use grants tokens to the oldest of requests and returns the rest.
func (m *Machine) use(requests *[]Request, set TokenSet) (left TokenSet) {
	left = set.Clone()
	for _, q := range set.Tokens() {
		if len(*requests) == 0 {
			break
		}
		if m.binding.Use((*requests)[0], q, &m.fx) {
			*requests = (*requests)[1:]
			left.Remove(q)
		}
	}
	return left
}

// useUpTo grants tokens to the requests of this node's batches up to batch at.
func (m *Machine) useUpTo(at int, set TokenSet) (left TokenSet) {
	left, i := set.Clone(), 0
	for _, q := range set.Tokens() {
		for i <= at && len(m.batches[i].Requests) == 0 {
			i++
		}
		if i > at {
			break
		}
		if of := &m.batches[i].Requests; m.binding.Use((*of)[0], q, &m.fx) {
			*of = (*of)[1:]
			left.Remove(q)
		}
	}
	return left
}

// useOffered uses the tokens that rest at the end of the line, if this node can use them by now.
func (m *Machine) useOffered() {
	for oldest := m.oldest(); oldest != nil && len(m.offered) > 0; oldest = m.oldest() {
		n := len(*oldest)
		if m.offered = m.use(oldest, m.offered); len(*oldest) == n {
			return
		}
	}
}

// offer moves on the tokens that this node cannot use.
func (m *Machine) offer() {
	if len(m.batches) == 0 {
		return
	}
	if m.baton && !m.batches[0].Next.IsZero() {
		m.moveOn(m.binding.Shed(), 0)
	}
	if last := len(m.batches) - 1; len(m.offered) > 0 && !m.batches[last].Next.IsZero() {
		left := m.offered
		m.offered = nil
		m.moveOn(left, last)
	}
}

// moveOn offers tokens to the batches behind batch at, and keeps at the end of the line what nobody
// can use.
func (m *Machine) moveOn(set TokenSet, at int) {
	var left []uint64 // to leave when the tokens have gone on
	for len(set) > 0 {
		next := m.batches[at].Next
		for _, q := range set.Tokens() {
			m.fx.Note(Trace{Kind: TraceOffered, Token: q, Node: next.Node})
		}
		if next.IsZero() {
			m.offered.AddAll(set)
			m.retryLater()
			break
		}
		before := Place{Node: m.self, Batch: m.batches[at].Number}
		if b := &m.batches[at]; b.leaves() {
			before = b.Before
			if !b.Skipped {
				left = append(left, b.Number)
			}
		}
		if next.Node != m.self {
			m.binding.Offer(next, before, set, &m.fx)
			break
		}
		at = m.find(next.Batch)
		m.batches[at].Before = before
		set = m.useUpTo(at, set)
	}
	for _, number := range left {
		m.leave(m.find(number))
	}
}

// leaves reports whether b is to leave the line, or has left: nobody waits in it, another batch is behind
// it, and the one before it is known.
func (b *Batch) leaves() bool {
	return len(b.Requests) == 0 && !b.Next.IsZero() && !b.Before.IsZero()
}

// leave takes batch at out of the line, if it is to leave.
func (m *Machine) leave(at int) {
	b := &m.batches[at]
	if !b.leaves() {
		return
	}
	b.Skipped = true
	if before := b.Before; before.Node != m.self {
		m.fx.Send(before.Node, Message{Kind: KindSkip, Batch: before.Batch, Number: b.Number, Origin: b.Next.Node, Other: b.Next.Batch})
	} else if i := m.find(before.Batch); i >= 0 {
		m.passBy(i, Place{Node: m.self, Batch: b.Number}, b.Next)
	}
}

// leadsTo reports whether the batch to is behind b.
func (b *Batch) leadsTo(to Place) bool { return b.Next.Node == to.Node && b.Next.Batch == to.Batch }

// passBy has batch at link to next in place of the batch left, and tells both. If another batch than
// left is behind it, nothing changes: when left comes next, batch at tells it, and left answers again.
// If batch at has left too, the batch before it tells them.
func (m *Machine) passBy(at int, left, next Place) {
	b := &m.batches[at]
	if !b.leadsTo(left) {
		return
	}
	b.Next = next
	if !b.Skipped {
		m.tell(left, Place{}) // nothing leads to it any more
		m.tell(next, Place{Node: m.self, Batch: b.Number})
	}
}

// tell tells the batch to that before is the one before it; the zero Place: to is out of the line.
func (m *Machine) tell(to, before Place) {
	if to.Node != m.self {
		m.binding.Offer(to, before, nil, &m.fx)
	} else if at := m.find(to.Batch); at >= 0 {
		m.put(at, before)
	}
}

// put notes which batch is before batch at, which may leave; or, before is the zero Place, that batch at
// is out of the line.
func (m *Machine) put(at int, before Place) {
	m.batches[at].Before = before
	if before.IsZero() {
		m.out = true // others are being looked at by their places
		return
	}
	m.leave(at)
}

// sweep drops the batches that are out of the line.
func (m *Machine) sweep() {
	if m.out {
		m.batches = slices.DeleteFunc(m.batches, func(b Batch) bool { return b.Skipped && b.Before.IsZero() })
		m.out = false
	}
}

// told is how many ends of retry intervals a closed batch sees before it tells the one behind it.
const told = 2

// retry has the tokens at the end of the line offered again, and looks after this node's batches: an
// empty one leaves, and one that is closed for a whole retry interval tells the batch behind it.
func (m *Machine) retry() {
	m.retrying = false
	m.binding.Return(m.offered, &m.fx)
	m.offered = nil
	for at := range m.batches {
		if b := &m.batches[at]; !b.Skipped && !b.Next.IsZero() {
			if b.Stood < told {
				b.Stood++
				if b.Stood == told {
					m.tell(b.Next, Place{Node: m.self, Batch: b.Number})
				}
			}
			m.leave(at)
		}
	}
	m.sweep()
	if slices.ContainsFunc(m.batches, func(b Batch) bool { return !b.Skipped }) {
		m.retryLater()
	}
}
