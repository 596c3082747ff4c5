package lookahead

// courier is what a node knows of the baton and its tokens.
type courier struct {
	baton   uint64 // number of the baton that is here; 0: none
	batch   uint32 // the captain that has it
	free    int    // tokens with the baton
	parked  int    // tokens for a baton that is to come
	got     uint64 // number of the last baton that was here
	serving bool   // the tokens are being handed out
	where   location
}

// location tells where a baton is, or is about to be.
type location struct {
	baton uint64
	node  int
}

// section is a batch's part in the sections.
type section struct {
	captain bool
	// past: a member's scout has gone on, a captain's baton too.
	past bool
	// scout waits here until the next place is known: whose it is, and how many
	// places it has found. A captain's own begins with none.
	scout place
	found int
	// A captain's: the places of its section, some perhaps not known yet; the first
	// of them that lacks tokens; and the next captain.
	places   []entry
	served   int
	follower place
}

// Messages of the sections.
type (
	// scout goes along the line, for a captain.
	scout struct {
		captain place
		to      uint32
		first   int // index of the first of places
		places  []entry
	}
	// report brings a captain what its scout has found.
	report struct {
		to     uint32
		first  int
		places []entry
		next   place // the next captain; zero: not known yet
	}
	// baton goes to a captain.
	baton struct {
		to     uint32
		number uint64
		free   int
	}
)

// captain decides by a hash that every node can compute.
func (l *line) captain(p place) bool {
	if l.every == 0 {
		return false
	}
	h := (uint64(p.node)<<32 | uint64(p.number)) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return (h^h>>32)%l.every == 0
}

// scoutOn carries on with the scout of a batch whose next place has become known.
func (l *line) scoutOn(i int, number uint32) {
	b := l.nodes[i].batches[number]
	owner := b.scout
	switch {
	case b.captain:
		owner = place{i, number}
	case owner.number == 0:
		return // it is to come
	default:
		b.past = true
	}
	if l.captain(b.next.place) {
		l.send(i, owner.node, "report", &report{to: owner.number, first: b.found, next: b.next.place})
		return
	}
	l.send(i, owner.node, "report", &report{to: owner.number, first: b.found, places: []entry{b.next}})
	l.send(i, b.next.node, "scout", &scout{captain: owner, to: b.next.number, first: b.found + 1})
}

// section takes in the messages of the sections.
func (l *line) section(i int, m any) {
	n := &l.nodes[i]
	switch m := m.(type) {
	case *scout:
		l.scouted(i, m)
	case *report:
		b := n.batches[m.to]
		end := m.first + len(m.places)
		if end > len(b.places) {
			b.places = append(b.places, make([]entry, end-len(b.places))...)
		}
		copy(b.places[m.first:], m.places)
		if m.next.number != 0 {
			b.follower = m.next
		}
		l.serve(i)
	case *baton:
		n.baton, n.batch, n.got = m.number, m.to, m.number
		n.where = location{m.number, i}
		n.free, n.parked = m.free+n.parked, 0
		l.serve(i)
	case *location:
		if m.baton > n.where.baton {
			n.where = *m
		}
	}
}

// scouted lets a scout go on from a member, or wait there.
func (l *line) scouted(i int, m *scout) {
	b := l.nodes[i].batches[m.to]
	b.past = b.next.number != 0
	back := report{to: m.captain.number, first: m.first, places: m.places}
	switch {
	case !b.past:
		b.scout, b.found = m.captain, m.first+len(m.places)
		if len(m.places) > 0 {
			l.send(i, m.captain.node, "report", &back)
		}
	case l.captain(b.next.place):
		back.next = b.next.place
		l.send(i, m.captain.node, "report", &back)
	default:
		l.send(i, b.next.node, "scout", &scout{m.captain, b.next.number, m.first, append(m.places, b.next)})
	}
	l.forget(i, m.to)
}

// serve hands out the baton's tokens: to the captain's own requests, then to the
// places of its section. The baton goes on when all of them have theirs.
func (l *line) serve(i int) {
	n := &l.nodes[i]
	if n.serving {
		return
	}
	n.serving = true
	for n.baton != 0 && l.serveOne(i) {
	}
	n.serving = false
}

// serveOne makes one step, and reports whether there may be another.
func (l *line) serveOne(i int) bool {
	n := &l.nodes[i]
	b := n.batches[n.batch]
	switch {
	case b.left > 0:
		give := min(n.free, b.left)
		n.free -= give
		if give > 0 {
			l.granted(i, n.batch, give)
		}
		return give > 0
	case b.served < len(b.places):
		at := &b.places[b.served] // of no request if it is not known yet
		give := min(n.free, at.count)
		if n.free -= give; give == 0 {
			return false
		}
		to := at.place
		if at.count -= give; at.count == 0 {
			b.served++
		}
		l.send(i, to.node, "grant", &grant{to.number, give})
		return true
	case b.follower.number != 0:
		l.pass(i, b)
		return true
	default:
		return false
	}
}

// pass hands the baton to the next captain, and tells home.
func (l *line) pass(i int, b *batch) {
	n := &l.nodes[i]
	to, own := b.follower, n.batch
	m := &baton{to: to.number, number: n.baton + 1, free: n.free}
	n.baton, n.free, n.where = 0, 0, location{m.number, to.node}
	b.past = true
	l.forget(i, own)
	if to.node != home {
		l.send(i, home, "locate", &location{m.number, to.node})
	}
	l.send(i, to.node, "baton", m)
}

// free takes back tokens that are not used at node i.
func (l *line) free(i, count int) {
	if n := &l.nodes[i]; n.baton != 0 {
		n.free += count
		l.serve(i)
		return
	}
	l.send(i, home, "tokens", &tokens{count: count})
}

// arrive brings tokens to home, or after the baton.
func (l *line) arrive(i int, m *tokens) {
	const follow = 2 // then they go by home again, which may know more
	n := &l.nodes[i]
	switch {
	case l.every == 0:
		l.ledger.stock += m.count
		l.write()
	case n.baton != 0:
		n.free += m.count
		l.serve(i)
	case m.baton > n.got, i == home && n.where.node == home:
		n.parked += m.count
	case i == home || m.hops < follow:
		l.send(i, n.where.node, "tokens", &tokens{m.count, m.hops + 1, n.where.baton})
	default:
		l.send(i, home, "tokens", &tokens{count: m.count})
	}
}
