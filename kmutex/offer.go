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
// leaves the line: it tells the batch before it, which passes it by from then on, and the batch
// behind it, which has another one before it from then on. Which one is before it, it learns from
// offers; in a line that stands for longer than the retry interval each batch tells the one behind it
// by an offer of no tokens. So neither offers nor the baton go a long way along batches in which
// nobody waits.

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
	news := m.batches[at].after(Place{Node: msg.Origin, Batch: msg.Other})
	if m.baton { // what this node can use goes to its oldest batch
		m.binding.Return(left, &m.fx)
		left = m.binding.Shed()
	} else {
		left = m.useUpTo(at, left)
	}
	if len(left) > 0 || len(msg.Free) == 0 && m.leaves(at, news) {
		m.moveOn(left, at, news)
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
			m.moveOn(shed, 0, false)
		}
	}
	if last := len(m.batches) - 1; len(m.offered) > 0 && !m.batches[last].Next.IsZero() {
		left := m.offered
		m.offered = nil
		m.moveOn(left, last, false)
	}
}

// moveOn offers tokens, or none, to the batches behind batch at, and keeps at the end of the line what
// nobody can use. An offer tells the next batch which one is before it. One of no tokens goes on only
// along batches that leave. news: batch at has just heard of another batch before it.
func (m *Machine) moveOn(set TokenSet, at int, news bool) {
	for none := len(set) == 0; ; {
		batch := &m.batches[at]
		for _, q := range set.Tokens() {
			m.fx.Note(Trace{Kind: TraceOffered, Token: q, Node: batch.Next.Node})
		}
		if batch.Next.IsZero() {
			m.offered.AddAll(set)
			m.retryLater()
			return
		}
		before := m.skip(at, news)
		if batch.Next.Node != m.self {
			m.binding.Offer(batch.Next, before, set, &m.fx)
			return
		}
		at = m.find(batch.Next.Batch)
		news = m.batches[at].after(before)
		if set = m.useUpTo(at, set); len(set) == 0 && !(none && m.leaves(at, news)) {
			return
		}
	}
}

// after notes which batch is before b and reports whether that is news.
func (b *Batch) after(before Place) (news bool) {
	news = b.Before != before
	b.Before = before
	return news
}

// leaves reports whether batch at is to leave the line, or to tell the batch before it, which is news, that
// it has left.
func (m *Machine) leaves(at int, news bool) bool {
	b := &m.batches[at]
	return len(b.Requests) == 0 && !b.Before.IsZero() && (news || !b.Skipped)
}

// skip has batch at leave the line if nobody waits in it, and returns the last batch up to here that
// has not left.
func (m *Machine) skip(at int, news bool) (before Place) {
	batch := &m.batches[at]
	if len(batch.Requests) > 0 || batch.Before.IsZero() {
		return Place{Node: m.self, Batch: batch.Number}
	}
	before, news = batch.Before, news || !batch.Skipped
	batch.Skipped = true
	if !news {
		return before
	}
	if before.Node != m.self {
		m.fx.Send(before.Node, Message{Kind: KindSkip, Batch: before.Batch, Origin: batch.Next.Node, Other: batch.Next.Batch})
	} else if i := m.find(before.Batch); i >= 0 {
		m.batches[i].Next = batch.Next
	}
	return before
}

// told is how many ends of retry intervals a closed batch sees before it tells the one behind it.
const told = 2

// retry has the tokens at the end of the line offered again, and looks after this node's batches:
// those in which nobody waits leave, and those that stand for a whole retry interval tell the one behind.
func (m *Machine) retry() {
	m.retrying = false
	m.binding.Return(m.offered, &m.fx)
	m.offered = nil
	for at := range slices.Backward(m.batches) {
		b := &m.batches[at]
		tells := false
		if b.Stood < told && !b.Next.IsZero() {
			b.Stood++
			tells = b.Stood == told
		}
		if m.leaves(at, false) || tells && !b.Skipped {
			m.moveOn(nil, at, false)
		}
	}
	if len(m.batches) > 0 {
		m.retryLater()
	}
}
