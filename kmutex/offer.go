package kmutex

// This file handles tokens that a node cannot use because their upstream is down for it (late
// binding). The coordinator offers them to the batch behind its own, and so on along the line to
// the first request that can use one. Tokens that no request can use stop at the last batch and go
// home after the retry interval; home sends them to the coordinator, which offers them again.

// waitAgain puts a request that could not use its token ahead of this node's others.
func (m *Machine) waitAgain(t Request) {
	first := &m.pending
	if len(m.batches) > 0 {
		first = &m.batches[0].Requests
	}
	*first = append([]Request{t}, *first...)
	m.fx.Note(Trace{Kind: TraceReturned, Request: t})
}

// onOffer takes in tokens that no batch ahead of this node's could use.
func (m *Machine) onOffer(msg *Message) error {
	if err := m.binding.TakeOffer(msg); err != nil {
		return err
	}
	if m.baton {
		m.binding.Return(msg.Free, &m.fx)
		return nil
	}
	left := m.use(msg.Free)
	for _, batch := range m.batches {
		if batch.Number == msg.Batch {
			m.moveOn(left, batch.Next)
			return nil
		}
	}
	m.binding.Return(left, &m.fx) // the baton has passed that batch
	return nil
}

// use grants offered tokens to the oldest waiting requests and returns the rest.
func (m *Machine) use(offered TokenSet) (left TokenSet) {
	left = offered.Clone()
	for _, q := range offered.Tokens() {
		oldest := m.oldest()
		if oldest == nil {
			break
		}
		if m.binding.Use((*oldest)[0], q, &m.fx) {
			*oldest = (*oldest)[1:]
			left.Remove(q)
		}
	}
	return left
}

// useOffered uses the tokens that rest at the end of the line, if this node can use them by now.
func (m *Machine) useOffered() {
	if len(m.offered) > 0 {
		m.offered = m.use(m.offered)
	}
}

// offer moves on the tokens that this node cannot use.
func (m *Machine) offer() {
	if len(m.batches) == 0 {
		return
	}
	if next := m.batches[0].Next; m.baton && !next.IsZero() {
		m.moveOn(m.binding.Shed(), next)
	}
	if next := m.batches[len(m.batches)-1].Next; len(m.offered) > 0 && !next.IsZero() {
		left := m.offered
		m.offered = nil
		m.moveOn(left, next)
	}
}

// moveOn offers tokens to the batch next, or keeps them at the end of the line.
func (m *Machine) moveOn(set TokenSet, next Place) {
	if len(set) == 0 {
		return
	}
	for _, q := range set.Tokens() {
		m.fx.Note(Trace{Kind: TraceOffered, Token: q, Node: next.Node})
	}
	if !next.IsZero() {
		m.binding.Offer(next, set, &m.fx)
		return
	}
	m.offered.AddAll(set)
	m.fx.RetryTimer, m.retrying = m.fx.RetryTimer || !m.retrying, true
}

// retry has the tokens at the end of the line offered again.
func (m *Machine) retry() {
	m.retrying = false
	m.binding.Return(m.offered, &m.fx)
	m.offered = nil
}
