package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Early binds a request to a token's queue as soon as the request is the
// coordinator's to assign, as the paper does. The zero value is ready for
// Install.
type Early struct {
	self kmutex.Node

	// excess is how many tokens are too many in this epoch. If any are, the tokens in away, with
	// which requests run here, go to the node gate when the requests end. Gate keeps excess of
	// them in kept and puts the rest into the queues that begin there.
	excess     int
	gate       kmutex.Node
	away, kept kmutex.TokenSet

	// coordinator: the baton is here, and with it tails and counter.
	coordinator bool
	tails       []kmutex.Seat
	counter     int

	// seats of this node, by serial, and the last serial given out.
	seats  map[uint64]seat
	serial uint64
	// waiting tells in which seat a request waits for its token.
	waiting map[kmutex.Request]uint64
	// at tells in which seat of this node a token is.
	at map[kmutex.Token]uint64
	// idle are the tokens here that are not in use and have no child to go to.
	idle kmutex.TokenSet
}

// seat is one place in a token's queue.
type seat struct {
	request kmutex.Request // 0: the request has ended
	token   kmutex.Token   // kmutex.NoToken: to come
	last    uint64         // serial of the token's last grant in this epoch; 0: none
	child   kmutex.Seat    // the next seat in the queue; zero: none known
}

var _ kmutex.Binding = (*Early)(nil)

// Install implements [kmutex.Binding]: each token that begins at this node is in the seat that
// [kmutex.SeatOf] gives. With an excess no token is in a seat: the seats at the first coordinator
// wait for theirs.
func (e *Early) Install(self kmutex.Node, in *kmutex.Install) error {
	if in.Classes != nil {
		return errors.New("early binding has no classes: a request would wait behind an upstream that is down")
	}
	excess := 0
	if in.Excess != nil {
		excess = int(in.Excess[0])
	}
	n := &Early{
		self: self, excess: excess, gate: in.Holder, serial: uint64(max(in.K, len(in.Tails))),
		seats: make(map[uint64]seat), waiting: make(map[kmutex.Request]uint64), at: make(map[kmutex.Token]uint64),
	}
	for _, g := range in.Running {
		switch {
		case in.Withheld.Has(g.Token):
		case excess > 0:
			n.away.Add(g.Token)
		default:
			n.put(kmutex.SeatOf(self, g.Token).Serial, seat{request: g.Request, token: g.Token})
			n.serial = max(n.serial, kmutex.SeatOf(self, g.Token).Serial)
		}
	}
	for _, q := range in.Free.Tokens() {
		n.put(kmutex.SeatOf(self, q).Serial, seat{token: q})
	}
	if in.Holder == self {
		for q, s := range in.Tails {
			if excess > 0 && !s.IsZero() {
				n.seats[kmutex.SeatOf(self, kmutex.Token(q)).Serial] = seat{token: kmutex.NoToken}
			}
		}
		if err := n.checkTails(in.Tails); err != nil {
			return err
		}
		n.coordinator, n.tails = true, slices.Clone(in.Tails)
	}
	*e = *n
	return nil
}

// put stores a seat that holds its token.
func (e *Early) put(serial uint64, s seat) {
	e.seats[serial] = s
	e.at[s.token] = serial
	if s.request == 0 {
		e.idle.Add(s.token)
	} else {
		e.idle.Remove(s.token)
	}
}

// sit gives t a new seat in which to wait for a token.
func (e *Early) sit(t kmutex.Request, fx *kmutex.Effects) kmutex.Seat {
	e.serial++
	e.seats[e.serial] = seat{request: t, token: kmutex.NoToken}
	e.waiting[t] = e.serial
	s := kmutex.Seat{Node: e.self, Serial: e.serial}
	fx.Note(kmutex.Trace{Kind: kmutex.TraceSeated, Request: t, Seat: s})
	return s
}

// Spreads implements [kmutex.Binding]: the queues begin at one node.
func (*Early) Spreads() bool { return false }

// Asks implements [kmutex.Binding]: one Request message at a time, as in the paper;
// the baton comes round fast, because it waits for no token.
func (*Early) Asks() bool { return false }

// Ask implements [kmutex.Binding]: as in the paper, the coordinator before this
// node ties the first request, so that request's seat goes into the message.
func (e *Early) Ask(requests []kmutex.Request, fx *kmutex.Effects) (kmutex.Seat, int) {
	return e.sit(requests[0], fx), 1
}

// Enter implements [kmutex.Binding]: an idle token may be taken at once; its
// seat stays where it is in the token's queue.
func (e *Early) Enter(t kmutex.Request, fx *kmutex.Effects) bool {
	q, ok := e.idle.Next(0)
	if !ok {
		return false
	}
	s := e.seats[e.at[q]]
	s.request, s.last = t, serialAfter(s.last, q)
	e.put(e.at[q], s)
	fx.Grant(t, q, s.last)
	return true
}

// serialAfter returns the serial of q's next grant. Each token has its own series of serials, so
// no two grants have the same serial.
func serialAfter(last uint64, q kmutex.Token) uint64 {
	if last == 0 {
		return uint64(q) + 1
	}
	return last + kmutex.MaxK
}

// Assign implements [kmutex.Binding]: every request is tied at once.
func (e *Early) Assign(requests []kmutex.Request, fx *kmutex.Effects) int {
	for i, t := range requests {
		if !e.dealable() {
			return i
		}
		e.tie(e.sit(t, fx), fx)
	}
	return len(requests)
}

// dealable reports whether any token has a queue: an epoch may begin with every token withheld.
func (e *Early) dealable() bool {
	return slices.ContainsFunc(e.tails, func(s kmutex.Seat) bool { return !s.IsZero() })
}

// tie puts s at the end of the next queue in round-robin order.
func (e *Early) tie(s kmutex.Seat, fx *kmutex.Effects) {
	for e.tails[e.counter].IsZero() {
		e.counter = (e.counter + 1) % len(e.tails)
	}
	tail := e.tails[e.counter]
	e.tails[e.counter] = s
	fx.Note(kmutex.Trace{Kind: kmutex.TraceTied, Token: kmutex.Token(e.counter), Seat: s})
	e.counter = (e.counter + 1) % len(e.tails)
	if tail.Node == e.self {
		e.child(tail.Serial, s, fx)
		return
	}
	fx.Send(tail.Node, kmutex.Message{Kind: kmutex.KindChild, Seat: tail, Child: s})
}

// child puts c after one of this node's seats. An idle token goes there at once.
func (e *Early) child(serial uint64, c kmutex.Seat, fx *kmutex.Effects) {
	s := e.seats[serial]
	s.child = c
	e.seats[serial] = s
	if s.token != kmutex.NoToken && s.request == 0 {
		e.handOver(serial, fx)
	}
}

// handOver sends the token of a seat whose request has ended to the seat's
// child, and further as long as the children are seats of this node whose
// requests have ended too. A seat without a child keeps its token, idle.
func (e *Early) handOver(serial uint64, fx *kmutex.Effects) {
	for {
		s := e.seats[serial]
		if s.child.IsZero() {
			e.put(serial, s)
			return
		}
		q := s.token
		delete(e.seats, serial)
		delete(e.at, q)
		e.idle.Remove(q)
		if s.child.Node != e.self {
			fx.Send(s.child.Node, kmutex.Message{Kind: kmutex.KindToken, Token: q, Seat: s.child, Serial: s.last})
			return
		}
		serial = s.child.Serial
		if e.token(serial, q, s.last, fx) {
			return
		}
	}
}

// token brings q, last granted as number last, to a seat and reports whether a
// request there has taken it.
func (e *Early) token(serial uint64, q kmutex.Token, last uint64, fx *kmutex.Effects) bool {
	s := e.seats[serial]
	s.token, s.last = q, last
	if s.request == 0 {
		e.put(serial, s)
		return false
	}
	s.last = serialAfter(last, q)
	e.put(serial, s)
	delete(e.waiting, s.request)
	fx.Grant(s.request, q, s.last)
	return true
}

// Depart implements [kmutex.Binding]: the first request of the batch behind is
// tied here, as in the paper; then the table of tails goes along.
func (e *Early) Depart(next kmutex.Place, _ bool, baton *kmutex.Message, fx *kmutex.Effects) {
	if !next.Seat.IsZero() && e.dealable() {
		e.tie(next.Seat, fx)
	}
	baton.Counter, baton.Tails = uint32(e.counter), e.tails
	e.coordinator, e.tails = false, nil
}

// CheckBaton implements [kmutex.Binding].
func (e *Early) CheckBaton(baton *kmutex.Message) error {
	if len(baton.Free) != 0 || baton.Excess != nil || int(baton.Counter) >= len(baton.Tails) {
		return errors.New("not a baton of this pool")
	}
	return e.checkTails(baton.Tails)
}

// checkTails returns why tails cannot be the last seats of the queues.
func (e *Early) checkTails(tails []kmutex.Seat) error {
	if len(tails) == 0 || len(tails) > kmutex.MaxK {
		return fmt.Errorf("%d tails", len(tails))
	}
	for _, s := range tails {
		if s.IsZero() {
			continue // a token that has no queue in this epoch
		}
		mine, ok := e.seats[s.Serial]
		if s.Node == 0 || s.Node == e.self && (!ok || !mine.child.IsZero()) {
			return fmt.Errorf("tail %v is none", s)
		}
	}
	return nil
}

// Arrive implements [kmutex.Binding].
func (e *Early) Arrive(baton *kmutex.Message, _ *kmutex.Effects) {
	e.coordinator, e.tails, e.counter = true, slices.Clone(baton.Tails), int(baton.Counter)
}

// Free implements [kmutex.Binding].
func (e *Early) Free(q kmutex.Token, fx *kmutex.Effects) {
	if e.away.Has(q) {
		e.away.Remove(q)
		if e.gate == e.self {
			e.collect(q, fx)
			return
		}
		fx.Send(e.gate, kmutex.Message{Kind: kmutex.KindToken, Token: q})
		return
	}
	serial := e.at[q]
	s := e.seats[serial]
	s.request = 0
	e.seats[serial] = s
	e.handOver(serial, fx)
}

// collect takes in a returned token at the gate. If more than the excess are kept then, the lowest
// kept token goes to its queue. It has one, since the queues are those of the lowest tokens.
func (e *Early) collect(q kmutex.Token, fx *kmutex.Effects) {
	e.kept.Add(q)
	if e.kept.Len() <= e.excess {
		return
	}
	q, _ = e.kept.Next(0)
	e.kept.Remove(q)
	serial := kmutex.SeatOf(e.self, q).Serial
	if !e.token(serial, q, 0, fx) {
		e.handOver(serial, fx)
	}
}

// Bar, Shed, Offer, TakeOffer, Use and Return implement [kmutex.Binding]: the tokens of early
// binding are all alike, so a node can use all or none.

// Bar reports no change.
func (*Early) Bar(kmutex.TokenSet) bool { return false }

// Shed takes nothing.
func (*Early) Shed() kmutex.TokenSet { return nil }

// Offer is never called.
func (*Early) Offer(_, _ kmutex.Place, _ kmutex.TokenSet, _ *kmutex.Effects) {}

// TakeOffer returns an error.
func (*Early) TakeOffer(*kmutex.Message) error { return errors.New("not a message of early binding") }

// Use is never called.
func (*Early) Use(kmutex.Request, kmutex.Token, *kmutex.Effects) bool { return false }

// Return is called with no tokens.
func (*Early) Return(kmutex.TokenSet, *kmutex.Effects) {}

// Cancel implements [kmutex.Binding]: the seat stays in its queue, and the
// token passes it by when it comes.
func (e *Early) Cancel(t kmutex.Request) bool {
	serial, ok := e.waiting[t]
	if !ok {
		return false
	}
	delete(e.waiting, t)
	s := e.seats[serial]
	s.request = 0
	e.seats[serial] = s
	return true
}

// Waiting implements [kmutex.Binding].
func (e *Early) Waiting(ts []kmutex.Request) []kmutex.Request {
	return slices.AppendSeq(ts, slices.Values(slices.Sorted(maps.Keys(e.waiting))))
}

// Receive implements [kmutex.Binding].
func (e *Early) Receive(m *kmutex.Message, fx *kmutex.Effects) error {
	if m.Kind == kmutex.KindToken && m.Seat.IsZero() {
		return e.returned(m.Token, fx)
	}
	s, ok := e.seats[m.Seat.Serial]
	switch {
	case m.Seat.Node != e.self || !ok:
		return errors.New("no such seat here")
	case m.Kind == kmutex.KindChild:
		if !s.child.IsZero() || !e.canFollow(m.Seat, m.Child) {
			return errors.New("a second child, or none that could be one")
		}
		e.child(m.Seat.Serial, m.Child, fx)
		return nil
	case m.Kind == kmutex.KindToken:
		if m.Token < 0 || m.Token >= kmutex.MaxK || e.at[m.Token] != 0 || s.token != kmutex.NoToken {
			return errors.New("no such token, or one too many")
		}
		if m.Serial != 0 && (m.Serial-1)%kmutex.MaxK != uint64(m.Token) {
			return errors.New("a serial of another token")
		}
		if !e.token(m.Seat.Serial, m.Token, m.Serial, fx) {
			e.handOver(m.Seat.Serial, fx)
		}
		return nil
	}
	return errors.New("not a message of early binding")
}

// returned takes in a token that another node sends to the gate.
func (e *Early) returned(q kmutex.Token, fx *kmutex.Effects) error {
	switch {
	case e.gate != e.self || e.excess == 0:
		return errors.New("a token that is not collected here")
	case q < 0 || q >= kmutex.MaxK || e.kept.Has(q) || e.away.Has(q) || e.at[q] != 0:
		return errors.New("no such token, or one too many")
	}
	e.collect(q, fx)
	return nil
}

// FreeHere implements [kmutex.Binding].
func (e *Early) FreeHere() (free kmutex.TokenSet, kept int) {
	free = e.idle.Clone()
	free.AddAll(e.kept)
	return free, e.kept.Len()
}

// canFollow reports whether child may come after a seat of this node. If child is a seat of this
// node, too, it must be waiting for its token.
func (e *Early) canFollow(s, child kmutex.Seat) bool {
	if child.Node == 0 || child == s {
		return false
	}
	here, ok := e.seats[child.Serial]
	return child.Node != e.self || ok && here.token == kmutex.NoToken
}

// Export implements [kmutex.Binding].
func (e *Early) Export(s *kmutex.State) {
	s.Counter, s.Tails, s.Kept = uint32(e.counter), slices.Clone(e.tails), e.kept.Clone()
	for _, serial := range slices.Sorted(maps.Keys(e.seats)) {
		it := e.seats[serial]
		s.Seats = append(s.Seats, kmutex.SeatState{Serial: serial, Request: it.request, Token: it.token, Last: it.last, Child: it.child})
	}
}

// Clone implements [kmutex.Binding].
func (e *Early) Clone() kmutex.Binding {
	c := *e
	c.tails, c.at, c.idle = slices.Clone(e.tails), maps.Clone(e.at), e.idle.Clone()
	c.away, c.kept = e.away.Clone(), e.kept.Clone()
	c.seats, c.waiting = maps.Clone(e.seats), maps.Clone(e.waiting)
	return &c
}
