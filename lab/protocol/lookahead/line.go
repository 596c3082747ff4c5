package lookahead

import (
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Written makes the protocol in which home writes the line down.
func Written() protocol.Spec {
	return spec("written-line", "a line of path reversal that home writes down; home hands out the tokens", 0)
}

// Sections makes the protocol in which about one place in every is a captain.
func Sections(every int) protocol.Spec {
	return spec("sections-"+strconv.Itoa(every), "a line of path reversal; the baton jumps from captain to captain", uint64(every))
}

func spec(name, about string, every uint64) protocol.Spec {
	return protocol.Spec{Name: name, About: about, New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
		l := &line{host: h, every: every, ask: time.Duration(4*s.Nodes) * s.Delay, nodes: make([]node, s.Nodes)}
		for i := range l.nodes {
			l.nodes[i] = node{parent: home, batches: make(map[uint32]*batch)}
		}
		first := &batch{section: section{captain: true}}
		l.nodes[home].parent, l.nodes[home].last, l.nodes[home].batches[1] = none, 1, first
		l.ledger = ledger{links: make(map[place]entry), tail: place{home, 1}, stock: s.K}
		if every > 0 {
			l.nodes[home].courier = courier{baton: 1, batch: 1, got: 1, free: s.K, where: location{1, home}}
		}
		return l, nil
	}}
}

const (
	none = -1
	home = 0
)

// place is where a batch stands in line. Numbers start at 1.
type place struct {
	node   int
	number uint32
}

// entry is a place with so many requests.
type entry struct {
	place
	count int
}

// line is all nodes of a pool.
type line struct {
	host   protocol.Host
	ask    time.Duration
	every  uint64 // 0: home writes the line down
	nodes  []node
	ledger ledger
}

type node struct {
	parent  int    // none: its newest batch is the last in line
	last    uint32 // number of its newest batch
	batches map[uint32]*batch
	pending []protocol.Request // in no batch yet
	waiting int                // requests in batches
	asks    uint64             // numbers the ask timers
	asked   bool               // the last of them has not run out
	courier
}

// batch is a run of requests with one place in line.
type batch struct {
	requests []protocol.Request
	left     int // tokens that are still to come; more than requests if some were cancelled
	next     entry
	section
}

// request looks for the last in line.
type request struct {
	entry
	hops int
}

// grant brings tokens to a place.
type grant struct {
	number uint32
	tokens int
}

// Acquire implements [protocol.Protocol].
func (l *line) Acquire(i int, t protocol.Request) {
	l.nodes[i].pending = append(l.nodes[i].pending, t)
	l.pump(i)
}

// Release implements [protocol.Protocol].
func (l *line) Release(i int, _ protocol.Request) { l.free(i, 1) }

// Cancel implements [protocol.Protocol]. The place stays; its token goes back.
func (l *line) Cancel(i int, t protocol.Request) {
	n := &l.nodes[i]
	is := func(have protocol.Request) bool { return have == t }
	n.pending = slices.DeleteFunc(n.pending, is)
	for _, b := range n.batches {
		before := len(b.requests)
		b.requests = slices.DeleteFunc(b.requests, is)
		n.waiting -= before - len(b.requests)
	}
	l.pump(i)
}

// Due implements [sim.Handler]: the ask interval is over.
func (l *line) Due(i int, t sim.Timer) {
	if t.Arg == l.nodes[i].asks {
		l.nodes[i].asked = false
		l.pump(i)
	}
}

// pump makes a batch of what is pending: at once if nothing else waits here, else
// once per ask interval.
func (l *line) pump(i int) {
	n := &l.nodes[i]
	if len(n.pending) == 0 || n.asked && n.waiting > 0 {
		return
	}
	n.asks++
	n.asked = true
	l.host.After(i, l.ask, sim.Timer{Arg: n.asks})
	before := n.last
	n.last++
	at := entry{place{i, n.last}, len(n.pending)}
	n.batches[n.last] = &batch{requests: n.pending, left: at.count, section: section{captain: l.captain(at.place)}}
	n.waiting += at.count
	n.pending = nil
	if n.parent == none {
		l.host.Found(0)
		l.link(i, before, at)
		return
	}
	parent := n.parent
	n.parent = none
	l.send(i, parent, "request", &request{entry: at})
}

// link puts a batch behind one of node i.
func (l *line) link(i int, number uint32, next entry) {
	b := l.nodes[i].batches[number]
	b.next = next
	if l.every == 0 {
		l.send(i, home, "link", &link{place{i, number}, next})
	} else {
		l.scoutOn(i, number)
	}
	l.forget(i, number)
}

// forget drops a batch of which nothing is to come any more.
func (l *line) forget(i int, number uint32) {
	if b := l.nodes[i].batches[number]; b != nil && b.left == 0 && b.next.number != 0 && (l.every == 0 || b.past) {
		delete(l.nodes[i].batches, number)
	}
}

// Deliver implements [sim.Handler].
func (l *line) Deliver(i, _ int, m any) {
	n := &l.nodes[i]
	switch m := m.(type) {
	case *request:
		parent := n.parent
		n.parent = m.node
		if parent != none { // path reversal
			l.send(i, parent, "request", &request{m.entry, m.hops + 1})
			return
		}
		l.host.Found(m.hops)
		l.link(i, n.last, m.entry)
	case *grant:
		l.granted(i, m.number, m.tokens)
	case *link:
		l.ledger.links[m.after] = m.next
		l.write()
	case *tokens:
		l.arrive(i, m)
	default:
		l.section(i, m)
	}
}

// granted lets requests of a batch in.
func (l *line) granted(i int, number uint32, tokens int) {
	n := &l.nodes[i]
	b := n.batches[number]
	used := min(tokens, len(b.requests))
	for _, t := range b.requests[:used] {
		l.host.Grant(i, t)
	}
	b.requests = b.requests[used:]
	b.left -= tokens
	n.waiting -= used
	l.forget(i, number)
	if tokens > used {
		l.free(i, tokens-used)
	}
	l.pump(i)
}

// send delivers a message; one to the same node is none.
func (l *line) send(from, to int, kind string, m any) {
	if from == to {
		l.Deliver(to, from, m)
		return
	}
	l.host.Send(from, to, kind, m)
}
