// Package invariants checks what holds in every state that correct nodes of package kmutex can reach: in tests, in
// the exhaustive search, and in the lab.
package invariants

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// World is one pool over all its nodes at one instant, in one epoch: what the
// invariants are about. Flight holds the messages that were sent and not yet
// taken in.
type World struct {
	K int
	// Classes of the tokens; nil: all are alike.
	Classes []kmutex.Class
	// Tokens are all tokens of the epoch; nil: not known. A Withheld token is at no node,
	// unless an adopted slot has it.
	Tokens, Withheld kmutex.TokenSet

	Nodes  []kmutex.State
	Flight []kmutex.Envelope
	// Early: the binding is early, else late.
	Early bool
	// AskPending reports that an ask interval is running somewhere, so that
	// pending requests may wait for it.
	AskPending bool
}

// invariant is one property that holds in every world a correct run can reach.
type invariant struct {
	Name  string
	Check func(*World) error
}

// invariants are the properties of the algorithm, numbered as in docs/algorithm.md.
// (The ninth, fairness, is about a history and not about a world; the lab counts
// inversions.)
var invariants = []invariant{
	{"1 safety", safety},
	{"2 token conservation", conservation},
	{"3 one baton", oneBaton},
	{"4 acyclic parents", acyclicParents},
	{"5 one line", oneLine},
	{"6 one place per waiting request", onePlace},
	{"7 disjoint queues (early)", disjointQueues},
	{"8 no idle token while a request waits (late)", noIdleToken},
	{"10 serials", serials},
	{"11 every token can be found (late)", findable},
	{"12 home owes what the coordinator expects (late)", owed},
}

// Check returns every invariant that w violates.
func (w *World) Check() error {
	var errs []error
	for _, inv := range invariants {
		if err := inv.Check(w); err != nil {
			errs = append(errs, fmt.Errorf("invariant %s: %w", inv.Name, err))
		}
	}
	return errors.Join(errs...)
}

// oneBaton checks that there is exactly one baton, held or in flight.
func oneBaton(w *World) error {
	n := 0
	for _, s := range w.Nodes {
		if s.Baton {
			n++
		}
	}
	for _, e := range w.Flight {
		if e.Message.Kind == kmutex.KindBaton {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d batons", n)
	}
	return nil
}

// acyclicParents checks that every chain of parents ends at the last in line or at the
// origin of a Request message in flight; both have no parent.
func acyclicParents(w *World) error {
	parent := make(map[kmutex.Node]kmutex.Node, len(w.Nodes))
	roots := 0
	for _, s := range w.Nodes {
		parent[s.Self] = s.Parent
		if s.Parent == 0 {
			roots++
		}
	}
	origins := make(map[kmutex.Node]bool)
	for _, e := range w.Flight {
		if e.Message.Kind == kmutex.KindRequest {
			origins[e.Message.Origin] = true
		}
	}
	for _, s := range w.Nodes {
		n := s.Self
		for steps := 0; parent[n] != 0; steps++ {
			if steps > len(w.Nodes) {
				return fmt.Errorf("a cycle of parents at node %d", s.Self)
			}
			n = parent[n]
		}
	}
	if roots == 0 || len(origins) == 0 && roots != 1 {
		return fmt.Errorf("%d nodes are last in line with requests of %d in flight", roots, len(origins))
	}
	return nil
}

// oneLine checks that, from the baton and from each Request message in flight along next, each
// batch comes at most once and in its node's order, up to an open batch. The batches that do not
// come are leaving, and nobody waits there. With no message in flight, no batch is leaving.
func oneLine(w *World) error {
	visited := make(map[kmutex.Place]bool)
	var starts []kmutex.Place
	for _, s := range w.Nodes {
		if s.Baton && len(s.Batches) > 0 {
			starts = append(starts, kmutex.Place{Node: s.Self, Batch: s.Batches[0].Number})
		}
		for i, b := range s.Batches {
			if b.Leaves && len(w.Flight) == 0 {
				return fmt.Errorf("batch %d of node %d does not get out of the line", b.Number, s.Self)
			}
			if b.Next.IsZero() && (i != len(s.Batches)-1 || s.Parent != 0) {
				return fmt.Errorf("batch %d of node %d is open and not the last", b.Number, s.Self)
			}
		}
	}
	for _, e := range w.Flight {
		switch e.Message.Kind {
		case kmutex.KindBaton:
			starts = append(starts, kmutex.Place{Node: e.To, Batch: e.Message.Batch})
		case kmutex.KindRequest:
			starts = append(starts, kmutex.Place{Node: e.Message.Origin, Batch: e.Message.Batch})
		default:
		}
	}
	for _, at := range starts {
		newest := make(map[kmutex.Node]uint64)
		for !at.IsZero() {
			b := w.batch(at)
			if b == nil || visited[at] || newest[at.Node] > at.Batch {
				return fmt.Errorf("the line leads to batch %d of node %d, which is not there, comes twice or out of order", at.Batch, at.Node)
			}
			visited[at], newest[at.Node] = true, at.Batch
			at = kmutex.Place{Node: b.Next.Node, Batch: b.Next.Batch}
		}
	}
	for _, s := range w.Nodes {
		for _, b := range s.Batches {
			if !visited[kmutex.Place{Node: s.Self, Batch: b.Number}] && (!b.Leaves || len(b.Requests) > 0) {
				return fmt.Errorf("the line does not lead to batch %d of node %d", b.Number, s.Self)
			}
		}
	}
	return nil
}

// batch returns the batch that a place names; nil: there is none.
func (w *World) batch(at kmutex.Place) *kmutex.Batch {
	for _, s := range w.Nodes {
		for i := range s.Batches {
			if s.Self == at.Node && s.Batches[i].Number == at.Batch {
				return &s.Batches[i]
			}
		}
	}
	return nil
}

// onePlace checks that each request is in only one of the batches, pending, the seats and the
// critical section.
func onePlace(w *World) error {
	for _, s := range w.Nodes {
		seen := make(map[kmutex.Request]int)
		count := func(ts ...kmutex.Request) {
			for _, t := range ts {
				seen[t]++
			}
		}
		for _, batch := range s.Batches {
			count(batch.Requests...)
		}
		count(s.Pending...)
		for _, g := range s.Running {
			if !w.Early {
				count(g.Request)
			}
		}
		for _, seat := range s.Seats {
			if seat.Request == 0 {
				continue
			}
			count(seat.Request)
			running := slices.ContainsFunc(s.Running, func(g kmutex.Grant) bool {
				return g.Request == seat.Request && g.Token == seat.Token
			})
			if running != (seat.Token != kmutex.NoToken) {
				return fmt.Errorf("request %d of node %d and its seat disagree", seat.Request, s.Self)
			}
		}
		for t, n := range seen {
			if n != 1 {
				return fmt.Errorf("request %d of node %d is in %d places", t, s.Self, n)
			}
		}
	}
	return nil
}

// disjointQueues checks, under early binding, that following child, and messages child in
// flight, no seat comes after two others, and each queue has at most one token.
func disjointQueues(w *World) error {
	if !w.Early {
		return nil
	}
	n := 0
	for _, s := range w.Nodes {
		n += len(s.Seats)
	}
	seats := make(map[kmutex.Seat]kmutex.SeatState, n)
	next := make(map[kmutex.Seat]kmutex.Seat, n)
	before := make(map[kmutex.Seat]int, n)
	link := func(s, child kmutex.Seat) {
		if !child.IsZero() {
			next[s] = child
			before[child]++
		}
	}
	var heads []kmutex.Seat
	for _, n := range w.Nodes {
		for _, s := range n.Seats {
			id := kmutex.Seat{Node: n.Self, Serial: s.Serial}
			seats[id] = s
			link(id, s.Child)
			if s.Token != kmutex.NoToken {
				heads = append(heads, id)
			}
		}
	}
	for _, e := range w.Flight {
		switch e.Message.Kind {
		case kmutex.KindChild:
			if _, twice := next[e.Message.Seat]; twice {
				return fmt.Errorf("seat %v has two children", e.Message.Seat)
			}
			link(e.Message.Seat, e.Message.Child)
		case kmutex.KindToken:
			heads = append(heads, e.Message.Seat)
		default:
		}
	}
	for s, n := range before {
		if n > 1 {
			return fmt.Errorf("seat %v comes after %d others", s, n)
		}
	}
	return walkQueues(heads, next, seats)
}

// walkQueues checks that from k tokens on, the queues reach no seat twice.
func walkQueues(heads []kmutex.Seat, next map[kmutex.Seat]kmutex.Seat, seats map[kmutex.Seat]kmutex.SeatState) error {
	reached := make(map[kmutex.Seat]bool, len(seats))
	for _, s := range heads {
		for !s.IsZero() {
			if reached[s] {
				return fmt.Errorf("seat %v is in two queues, or has two tokens", s)
			}
			if _, ok := seats[s]; !ok {
				return fmt.Errorf("seat %v does not exist", s)
			}
			reached[s] = true
			s = next[s]
		}
	}
	return nil
}

// noIdleToken checks, under late binding, that when nothing is in flight and no interval is
// running, no token is free while a request waits at a node that can use it.
func noIdleToken(w *World) error {
	if w.Early || len(w.Flight) > 0 || w.AskPending {
		return nil
	}
	var free kmutex.TokenSet
	for _, s := range w.Nodes {
		if n := len(s.Batches); len(s.Offered) > 0 && (n == 0 || !s.Batches[n-1].Next.IsZero()) {
			return fmt.Errorf("tokens %v rest at node %d, which is not the last in line", s.Offered, s.Self)
		}
	}
	for _, s := range w.Nodes {
		if s.Retrying && len(s.Offered) > 0 {
			return nil
		}
		for _, set := range []kmutex.TokenSet{s.Free, s.Stock, s.Offered} {
			free.AddAll(set)
		}
		for _, p := range s.Parked {
			free.AddAll(p.Free)
		}
	}
	for i := range w.classes() {
		here := w.of(free, i)
		if here.Len() <= w.excess(i) {
			continue
		}
		for _, s := range w.Nodes {
			usable := here.Clone()
			if usable.RemoveAll(s.Barred); len(usable) > 0 && waits(&s) {
				return fmt.Errorf("tokens %v are free while node %d waits", usable, s.Self)
			}
		}
	}
	return nil
}

// waits reports whether a request waits outside the seats.
func waits(s *kmutex.State) bool {
	return len(s.Pending) > 0 || slices.ContainsFunc(s.Batches, func(b kmutex.Batch) bool { return len(b.Requests) > 0 })
}
