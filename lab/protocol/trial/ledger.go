package trial

import (
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Ledger makes the tree's line written down at home: by every eighth turn, and by
// the last one.
func Ledger() protocol.Spec { return written("ledger", false) }

// LedgerHint is Ledger in which a token tells who was last in line.
func LedgerHint() protocol.Spec { return written("ledger-hint", true) }

const batch = 8

func written(name string, hint bool) protocol.Spec {
	return protocol.Spec{
		Name: name, About: "trial: the baton runs ahead, home hands tokens out in the order of the line",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			l := &ledger{host: h, hint: hint, free: s.K, nodes: make([]member, s.Nodes)}
			for i := range l.nodes {
				l.nodes[i].parent, l.nodes[i].next = home, none
			}
			l.nodes[home].parent, l.nodes[home].baton = none, true
			return l, nil
		},
	}
}

const (
	home = 0
	none = -1
)

type ledger struct {
	host  protocol.Host
	hint  bool
	nodes []member
	// At home: who stands in line, and the free tokens.
	line []turn
	last turn
	free int
}

// turn is one node's place in the line. Turns are numbered along it.
type turn struct{ node, tickets, number int }

// member is one node.
type member struct {
	parent  int // none: the last in line
	next    int
	baton   bool
	asked   bool
	number  int // of this node's last turn
	pending []protocol.Ticket
	turn    []protocol.Ticket // stands in line, before the baton
	written []protocol.Ticket // stands in the ledger
}

type (
	request struct{ origin, hops int }
	// baton carries the turns that are not written down yet, and how many
	// there were in all.
	baton struct {
		turns  []turn
		number int
	}
	deposit struct{ turns []turn }
	token   struct{ last turn }
	back    struct{}
)

func (l *ledger) Acquire(i int, t protocol.Ticket) {
	l.nodes[i].pending = append(l.nodes[i].pending, t)
	l.pump(i)
}

func (l *ledger) pump(i int) {
	n := &l.nodes[i]
	switch {
	case len(n.pending) == 0:
	case n.baton: // nobody stands behind
		n.turn, n.pending = n.pending, nil
		l.write(i, l.enter(i, nil))
	case n.parent == none:
		n.turn, n.pending = append(n.turn, n.pending...), nil
	case !n.asked:
		n.turn, n.pending = n.pending, nil
		n.asked = true
		to := n.parent
		n.parent = none
		l.host.Send(i, to, "request", request{origin: i})
	}
}

// enter adds node i's turn to those that are to be written down.
func (l *ledger) enter(i int, turns []turn) []turn {
	n := &l.nodes[i]
	n.number++
	turns = append(turns, turn{i, len(n.turn), n.number})
	n.written, n.turn = append(n.written, n.turn...), nil
	return turns
}

func (l *ledger) write(i int, turns []turn) {
	if i != home {
		l.host.Send(i, home, "deposit", deposit{turns})
		return
	}
	l.line = append(l.line, turns...)
	l.last = turns[len(turns)-1]
	l.serve()
}

func (l *ledger) serve() {
	for l.free > 0 && len(l.line) > 0 {
		t := &l.line[0]
		if t.tickets == 0 {
			l.line = l.line[1:]
			continue
		}
		t.tickets--
		l.free--
		if t.node == home {
			l.take(home)
		} else {
			l.host.Send(home, t.node, "token", token{l.last})
		}
	}
}

// take lets node i's first written ticket in.
func (l *ledger) take(i int) {
	n := &l.nodes[i]
	if len(n.written) == 0 { // it has been cancelled
		l.Release(i, 0)
		return
	}
	t := n.written[0]
	n.written = n.written[1:]
	l.host.Grant(i, t)
}

func (l *ledger) Release(i int, _ protocol.Ticket) {
	if i != home {
		l.host.Send(i, home, "token", back{})
		return
	}
	l.free++
	l.serve()
}

func (l *ledger) Deliver(to, _ int, m any) {
	n := &l.nodes[to]
	switch m := m.(type) {
	case request:
		l.asked(to, m)
	case baton:
		l.arrive(to, m)
	case deposit:
		l.write(home, m.turns)
	case back:
		l.Release(home, 0)
	case token:
		// Who was last then stands behind this node's last turn, so its way to
		// the last in line cannot lead back here.
		if l.hint && !n.asked && n.parent != none && m.last.number > n.number && m.last.node != to {
			n.parent = m.last.node
		}
		l.take(to)
	}
}

func (l *ledger) asked(i int, m request) {
	n := &l.nodes[i]
	to := n.parent
	n.parent = m.origin
	switch {
	case to != none:
		l.host.Send(i, to, "request", request{m.origin, m.hops + 1})
		return
	case n.baton:
		n.baton = false
		l.host.Send(i, m.origin, "baton", baton{number: n.number})
	default:
		n.next = m.origin
	}
	l.host.Found(m.hops)
}

func (l *ledger) arrive(i int, m baton) {
	n := &l.nodes[i]
	n.asked, n.number = false, m.number
	turns := l.enter(i, m.turns)
	if n.next == none || i == home || len(turns) >= batch {
		l.write(i, turns)
		turns = nil
	}
	if n.next == none {
		n.baton = true
		return
	}
	l.host.Send(i, n.next, "baton", baton{turns, n.number})
	n.next = none
	l.pump(i)
}

func (l *ledger) Cancel(i int, t protocol.Ticket) {
	n := &l.nodes[i]
	for _, tickets := range []*[]protocol.Ticket{&n.pending, &n.turn, &n.written} {
		if at := slices.Index(*tickets, t); at >= 0 {
			*tickets = slices.Delete(*tickets, at, at+1)
		}
	}
}

func (*ledger) Due(int, sim.Timer) {}
