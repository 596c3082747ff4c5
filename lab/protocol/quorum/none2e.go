package quorum

// nonEndToEndRoute does a node's part of a route: a REQUEST waits in the partial
// line of the first node that already is on a route to this replica, a RELEASE and a
// YIELD collect the partial lines on their way.
//
// A node on the route can only guess the holder: it noted the first request that came by, before any
// replica had voted. So its message is marked as a guess, and no node counts it as a vote for itself.
func (f *Fleet) nonEndToEndRoute(at, from, next int, m *message) (int, bool) {
	n := &f.nodes[at]
	e, there := n.entries[m.key]
	if there && f.opt.Lease > 0 && f.host.Now() >= e.until {
		there = false
	}
	switch m.kind {
	case request:
		if there && !e.holder.is(m.req) {
			e.line = insert(e.line, m.req)
			n.entries[m.key] = e
			f.send(at, m.req.Node, message{kind: response, key: m.key, req: m.req, vote: e.holder})
			return next, true
		}
		e.holder, e.next, e.prev, e.until = m.req, next, from, f.host.Now()+f.opt.Lease
		n.entries[m.key] = e
	case clean:
		return f.clear(at, from, next, m)
	case release, yield:
		if there {
			for _, q := range e.line {
				m.line = insert(m.line, q)
			}
			if f.overlay.there[e.next] {
				next = e.next
			}
		}
		delete(n.entries, m.key)
	default:
	}
	return next, false
}
