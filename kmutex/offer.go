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
// leaves the line: it tells the batch before it what is behind it, and that passes it by from then on
// and tells it that it is out. Which batch is before it, it learns from offers; in a line that stands for
// longer than the retry interval each batch tells the one behind it by an offer of no tokens, and again
// when another one is behind it. So neither offers nor the baton go a long way along batches in which
// nobody waits.
//
// A batch that is leaving passes nobody by: the one before it knows already what comes next. So of
// neighbours that leave at the same time the first goes first. The next one is told what is before it then,
// and says again that it leaves.

// waitAgain puts a request that could not use its token ahead of this node's others.
func (m *Machine) waitAgain(t Request) {
	first := &m.pending
	if i := slices.IndexFunc(m.batches, func(b Batch) bool { return !b.Leaves }); i >= 0 {
		first = &m.batches[i].Requests
	}
	*first = append([]Request{t}, *first...)
	m.fx.Note(Trace{Kind: TraceReturned, Request: t})
}

// onOffer takes in tokens that no batch ahead of this node's could use.
func (m *Machine) onOffer(msg *Message) error {
	left, at := msg.Free, m.find(msg.Batch)
	known := at > 0 || at == 0 && !m.baton // else the baton has passed that batch, or is there
	before := Place{Node: msg.Origin, Batch: msg.Other, Changes: msg.Changes}
	if known && before.IsZero() && !m.batches[at].Leaves {
		return errors.New("a batch that does not leave is out of the line")
	}
	if err := m.binding.TakeOffer(msg); err != nil {
		return err
	}
	if !known {
		m.binding.Return(left, &m.fx)
		return nil
	}
	m.put(at, before)
	if len(left) == 0 {
		return nil
	}
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
	next := Place{Node: msg.Origin, Batch: msg.Other, Changes: msg.Changes}
	if msg.Number == 0 || next.Node == 0 || next.Batch == 0 {
		return errors.New("a skip by no batch, or to none")
	}
	at := m.find(msg.Batch)
	if at < 0 {
		return nil // it is out of the line and another one is before the sender's, or the baton has passed it
	}
	switch b := &m.batches[at]; {
	case b.Next.Node != from || b.Next.Batch != msg.Number:
		return errors.New("a skip by a batch that is not the one behind")
	case b.Leaves:
		return nil // what is before it then will tell the sender
	case next.Node == m.self && m.find(next.Batch) <= at:
		return errors.New("a skip to a batch that is not behind")
	}
	m.passBy(at, next)
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
	passed := []uint64{m.batches[at].Number}
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
		if next.Node != m.self {
			m.binding.Offer(next, m.before(at), set, &m.fx)
			break
		}
		if at = m.find(next.Batch); at < 0 { // both have left, and the first does not know yet that it is out
			m.binding.Return(set, &m.fx)
			break
		}
		set = m.useUpTo(at, set)
		passed = append(passed, next.Batch)
	}
	for _, number := range slices.Backward(passed) {
		m.leave(m.find(number))
	}
}

// before returns batch at as the one behind it is to know it.
func (m *Machine) before(at int) Place {
	b := &m.batches[at]
	return Place{Node: m.self, Batch: b.Number, Changes: b.Next.Changes}
}

// leave has batch at leave the line, if nobody waits in it, another batch is behind it, and the one before
// it is known.
func (m *Machine) leave(at int) {
	b := &m.batches[at]
	if b.Leaves || len(b.Requests) > 0 || b.Next.IsZero() || b.Before.IsZero() {
		return
	}
	b.Leaves = true
	m.skip(at)
}

// skip tells the batch before batch at to pass it by.
func (m *Machine) skip(at int) {
	b := &m.batches[at]
	if before := b.Before; before.Node != m.self {
		m.fx.Send(before.Node, Message{Kind: KindSkip, Batch: before.Batch, Number: b.Number, Origin: b.Next.Node, Other: b.Next.Batch, Changes: b.Next.Changes})
	} else if i := m.find(before.Batch); i >= 0 && !m.batches[i].Leaves {
		m.passBy(i, b.Next)
	}
}

// passBy has batch at, and no longer the one behind it, lead to next, and tells both.
func (m *Machine) passBy(at int, next Place) {
	b := &m.batches[at]
	left := b.Next
	next.Changes++
	b.Next = next
	m.tell(left, Place{}) // nothing leads to it any more
	m.tell(next, m.before(at))
}

// tell tells the batch to that before is the one before it; the zero Place: to is out of the line.
func (m *Machine) tell(to, before Place) {
	if to.Node != m.self {
		m.binding.Offer(to, before, nil, &m.fx)
	} else if at := m.find(to.Batch); at >= 0 {
		m.put(at, before)
	}
}

// put notes which batch is before batch at; or, before is the zero Place, that batch at is out of the line.
// What a batch said that has left since may come late: there had been fewer changes then.
func (m *Machine) put(at int, before Place) {
	switch b := &m.batches[at]; {
	case before.IsZero():
		b.Before = before
		m.out = true // others are being looked at by their places
	case b.Before.IsZero() || before.Changes > b.Before.Changes:
		b.Before = before
		if b.Leaves {
			m.skip(at)
		} else {
			m.leave(at)
		}
	}
}

// sweep drops the batches that are out of the line.
func (m *Machine) sweep() {
	if m.out {
		m.batches = slices.DeleteFunc(m.batches, func(b Batch) bool { return b.Leaves && b.Before.IsZero() })
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
	for at := len(m.batches) - 1; at >= 0; at-- {
		if b := &m.batches[at]; !b.Leaves && !b.Next.IsZero() {
			if b.Stood < told {
				b.Stood++
				if b.Stood == told {
					m.tell(b.Next, m.before(at))
				}
			}
			m.leave(at)
		}
	}
	m.sweep()
	if slices.ContainsFunc(m.batches, func(b Batch) bool { return !b.Leaves }) {
		m.retryLater()
	}
}
