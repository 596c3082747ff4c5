package hosts

import (
	"cmp"
	"slices"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/sim"
)

// link is what two incarnations share over all connections of their processes, at one end: see
// package transport. Messages stay with their sender until they have arrived, and each is taken in
// once. Here the sender knows at once that one has.
type link struct {
	self, peer kmutex.Node
	host       int
	out        []any  // what has not arrived
	first      uint64 // number of the first of them
	given      uint64 // the newest that was ever given to a connection
	received   uint64 // the newest that has come
	flows      *conn  // the connection over which messages go; nil: none
}

type (
	// linked says which link an end serves, and what has arrived over it.
	linked struct {
		self, peer kmutex.Node
		received   uint64
	}
	// message is one of a link.
	message struct {
		link   *link // the sender's
		number uint64
		m      any
	}
	// letter is a message that is sent once and answered.
	letter struct {
		number   uint64
		from, to kmutex.Node
		m        any
	}
	// answer says whether a letter was taken in.
	answer struct {
		number uint64
		taken  bool
	}
	// call is a letter without an answer.
	call struct {
		number uint64
		m      any
	}
)

// Peer is a member to which a gateway has a link.
type Peer struct {
	Node kmutex.Node
	Host int
}

// SetPeers says which incarnation this is, 0: none, and to whom it has links. It returns what
// has never left for those to whom it has none any more.
func (h *Host) SetPeers(self kmutex.Node, peers []Peer) (unsent []any) {
	before := h.links
	h.links = nil
	if self != h.self {
		h.self = self
	}
	for _, l := range before {
		if l.self == self && slices.Contains(peers, Peer{l.peer, l.host}) {
			h.links = append(h.links, l)
			continue
		}
		unsent = append(unsent, l.out[min(len(l.out), int(l.given+1-l.first)):]...)
		if c := h.cur[l.host]; c != nil {
			h.dropCalls(&c.ends[c.side(h)])
		}
	}
	for _, p := range peers {
		if h.link(p.Node) == nil {
			h.links = append(h.links, &link{self: self, peer: p.Node, host: p.Host, first: 1})
			slices.SortFunc(h.links, func(a, b *link) int { return cmp.Compare(a.peer, b.peer) })
			h.sayLink(p.Host)
		}
	}
	return unsent
}

func (h *Host) link(peer kmutex.Node) *link {
	i, ok := slices.BinarySearchFunc(h.links, peer, func(l *link, n kmutex.Node) int { return cmp.Compare(l.peer, n) })
	if !ok {
		return nil
	}
	return h.links[i]
}

// sayLink says over a connection that has begun, or for a link that has, what this end serves.
func (h *Host) sayLink(to int) {
	i := slices.IndexFunc(h.links, func(l *link) bool { return l.host == to })
	if i < 0 {
		return
	}
	l := h.links[i]
	if h.post(to, &linked{l.self, l.peer, l.received}) {
		c := h.cur[to]
		h.flow(l, c, c.ends[c.side(h)].said)
	}
}

func (h *Host) heardLink(c *conn, e *end, said *linked) {
	e.said = said
	if l := h.link(said.self); l != nil {
		h.flow(l, c, said)
	}
}

// flow lets messages go over a connection whose other end serves the same link: first what has
// not arrived over the one before.
func (h *Host) flow(l *link, c *conn, said *linked) {
	if said == nil || said.self != l.peer || said.peer != l.self || l.flows == c {
		return
	}
	l.flows = c
	for i := range l.out {
		h.put(l, l.first+uint64(i))
	}
}

func (h *Host) put(l *link, number uint64) {
	l.given = max(l.given, number)
	h.post(l.host, &message{l, number, l.out[number-l.first]})
}

// Send sends a message to another incarnation.
func (h *Host) Send(to kmutex.Node, m any) {
	l := h.link(to)
	if l == nil {
		return // it has just left
	}
	l.out = append(l.out, m)
	if h.up(l) {
		h.put(l, l.first+uint64(len(l.out))-1)
	}
}

// up reports that messages flow.
func (h *Host) up(l *link) bool { return l.flows != nil && l.flows == h.cur[l.host] }

// receive takes in a message of a link.
func (h *Host) receive(m *message) {
	l := h.link(m.link.self)
	if l == nil || l.self != m.link.peer || m.number != l.received+1 {
		return
	}
	l.received++
	m.link.out, m.link.first = m.link.out[1:], m.link.first+1
	h.cfg.App.Receive(h, l.host, m.m)
}

// Unreceived calls visit for every message of two incarnations that both live which has not arrived.
func (w *World) Unreceived(visit func(m any)) {
	for _, h := range w.hosts {
		if h.Core == nil {
			continue
		}
		for _, l := range h.links {
			for _, m := range l.out {
				visit(m)
			}
		}
	}
}

// Post sends a letter to another incarnation. The App is told if it may not have arrived.
func (h *Host) Post(to kmutex.Node, m any) {
	l := h.link(to)
	if l == nil || !h.up(l) {
		h.failed = append(h.failed, m)
		h.After(0, sim.Timer{Kind: timerFailed})
		return
	}
	c := l.flows
	e := &c.ends[c.side(h)]
	e.count++
	e.calls = append(e.calls, call{e.count, m})
	way := [2]int{h.Index, l.host}
	breaks := h.losses[way] && h.Rand().IntN(2) == 0
	if !breaks || h.Rand().IntN(2) == 0 {
		h.post(l.host, &letter{e.count, l.self, l.peer, m})
	}
	if breaks {
		h.hangUp(c)
		e.state = open // it is told, too
		h.Engine.Send(l.host, h.Index, &reset{c})
	}
}

func (h *Host) takeLetter(c *conn, m *letter) {
	l := h.link(m.from)
	taken := l != nil && l.self == m.to && h.cfg.App.Take(h, m.from, m.m)
	if h.Core != nil && h.cur[c.ends[1-c.side(h)].host.Index] == c {
		h.post(c.ends[1-c.side(h)].host.Index, &answer{m.number, taken})
	}
}

// answered takes in what became of a letter.
func (h *Host) answered(e *end, m *answer) {
	i := slices.IndexFunc(e.calls, func(c call) bool { return c.number == m.number })
	if i < 0 {
		return
	}
	lost := e.calls[i].m
	e.calls = slices.Delete(e.calls, i, i+1)
	if !m.taken {
		h.cfg.App.Lost(h, lost)
	}
}

// dropCalls gives up the letters that have no answer.
func (h *Host) dropCalls(e *end) {
	for _, c := range e.calls {
		h.failed = append(h.failed, c.m)
	}
	if e.calls = nil; len(h.failed) > 0 {
		h.After(0, sim.Timer{Kind: timerFailed})
	}
}

func (h *Host) loseLetters() {
	failed := h.failed
	h.failed = nil
	for _, m := range failed {
		h.cfg.App.Lost(h, m)
	}
}
