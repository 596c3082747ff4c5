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
// While a coordinator waits, all requests of the batches behind it may leave, or be served by
// offers. An offer that finds such a batch tells the last batch before it in which a request waits,
// which links to the batch behind it from then on. A coordinator that waits for longer than the
// retry interval, and has such a batch itself, has an offer of no tokens go along the whole line, for
// the sake of that: so neither offers nor the baton go a long way along batches in which nobody waits.

// waitAgain puts a request that could not use its token ahead of this node's others.
func (m *Machine) waitAgain(t Request) {
	first := &m.pending
	if i := slices.IndexFunc(m.batches, func(b Batch) bool { return b.Skipped.IsZero() }); i >= 0 {
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
	switch {
	case at < 0, at == 0 && m.baton: // the baton has passed that batch, or is there
		m.binding.Return(left, &m.fx)
		return nil
	case m.baton: // what this node can use goes to its oldest batch
		m.binding.Return(left, &m.fx)
		left = m.binding.Shed()
	default:
		left = m.useUpTo(at, left)
	}
	if len(left) > 0 || len(msg.Free) == 0 {
		m.moveOn(left, at, Place{Node: msg.Origin, Batch: msg.Other})
	}
	return nil
}

// onSkip has a batch of this node pass by those behind it in which nobody waits.
func (m *Machine) onSkip(msg *Message) error {
	at := m.find(msg.Batch)
	if at < 0 {
		return nil // the baton has passed that batch
	}
	if msg.Origin == 0 || msg.Other == 0 || msg.Origin == m.self && m.find(msg.Other) <= at || m.batches[at].Next.IsZero() {
		return errors.New("a skip to a batch that is not behind")
	}
	m.batches[at].Next = Place{Node: msg.Origin, Batch: msg.Other}
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
	for i := range m.batches[:at+1] {
		set = m.use(&m.batches[i].Requests, set)
	}
	return set
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
		if shed := m.binding.Shed(); len(shed) > 0 {
			m.moveOn(shed, 0, Place{})
		}
		if m.emptied() {
			m.retryLater()
		}
	}
	if last := len(m.batches) - 1; len(m.offered) > 0 && !m.batches[last].Next.IsZero() {
		left := m.offered
		m.offered = nil
		m.moveOn(left, last, Place{})
	}
}

// moveOn offers tokens, or none, to the batches behind batch at, and keeps at the end of the line
// what nobody can use. before is the last batch ahead of at in which a request waits; the zero
// Place: not known.
func (m *Machine) moveOn(set TokenSet, at int, before Place) {
	for none := len(set) == 0; ; {
		batch := &m.batches[at]
		next := batch.Next
		for _, q := range set.Tokens() {
			m.fx.Note(Trace{Kind: TraceOffered, Token: q, Node: next.Node})
		}
		if next.IsZero() {
			if len(set) > 0 {
				m.offered.AddAll(set)
				m.retryLater()
			}
			return
		}
		if len(batch.Requests) > 0 || before.IsZero() {
			before = Place{Node: m.self, Batch: batch.Number}
		} else {
			m.skip(batch, before)
		}
		if next.Node != m.self {
			m.binding.Offer(next, before, set, &m.fx)
			return
		}
		at = m.find(next.Batch)
		if set = m.useUpTo(at, set); len(set) == 0 && !none {
			return
		}
	}
}

// emptied reports whether a batch of this node is in line in which nobody waits any more. A
// coordinator takes it as the sign that there are such batches elsewhere, too: without a sign it would
// have to look through the line each second.
func (m *Machine) emptied() bool {
	return slices.ContainsFunc(m.batches, func(b Batch) bool {
		return len(b.Requests) == 0 && !b.Next.IsZero() && b.Skipped.IsZero()
	})
}

func (m *Machine) retryLater() {
	if m.binding.Asks() {
		m.fx.RetryTimer, m.retrying = m.fx.RetryTimer || !m.retrying, true
	}
}

// skip tells the batch before an empty one, once, to pass that by.
func (m *Machine) skip(batch *Batch, before Place) {
	if batch.Skipped == before {
		return
	}
	batch.Skipped = before
	if before.Node == m.self {
		if at := m.find(before.Batch); at >= 0 {
			m.batches[at].Next = batch.Next
		}
		return
	}
	m.fx.Send(before.Node, Message{Kind: KindSkip, Batch: before.Batch, Origin: batch.Next.Node, Other: batch.Next.Batch})
}

// retry has the tokens at the end of the line offered again, and the line behind a coordinator that
// waits looked through.
func (m *Machine) retry() {
	m.retrying = false
	switch {
	case len(m.offered) > 0:
		m.binding.Return(m.offered, &m.fx)
		m.offered = nil
	case m.baton && m.emptied():
		m.moveOn(nil, 0, Place{})
	}
}
