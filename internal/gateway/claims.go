package gateway

import (
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// claims has all claims on a pool's slots at this gateway: in line, in the critical
// section, or behind others of their client. It asks the machine for nothing itself: it
// leaves events. The pool's lock guards it.
type claims struct {
	queue
	shared *poolEnv
	self   kmutex.Node
	// founded says when the cluster was.
	founded  int64
	numbers  uint64 // of claims so far
	waiting  int
	inFlight int
	requests int                     // that wait or are in flight, those on tickets' slots among them
	held     map[*pool.Ticket]*claim // of the tickets here
	guests   map[*guest]struct{}
	events   []ownEvent // for the machine, in order
	rate     serviceRate
	idle     signal    // no request waits or is in flight
	newest   time.Time // arrival of the youngest request that was admitted
}

// ownEvent is an event of the machine that this gateway's own requests cause.
type ownEvent struct {
	kind   kmutex.EventKind
	number kmutex.Request
}

// guest is a request on a ticket's slot, wherever the ticket is.
type guest struct {
	since   time.Time
	own     *LineEntry // of the program's own slot; nil: it is a request's
	carries bool       // the part of the ticket's token in the pool's rate
	lose    func()     // tells it that the slot is lost; not under the pool's lock
}

func newClaims(shared *poolEnv) claims {
	return claims{
		queue:  queue{slots: make(map[kmutex.Request]*claim), clients: make(map[string]*client), shares: newShares(), bound: -1},
		shared: shared, held: make(map[*pool.Ticket]*claim), guests: make(map[*guest]struct{}),
	}
}

// want leaves an event for the machine.
func (c *claims) want(kind kmutex.EventKind, number kmutex.Request) {
	c.events = append(c.events, ownEvent{kind, number})
}

// init makes s a new claim; of a ticket, if it is not nil.
func (c *claims) init(s *claim, since time.Time, t *pool.Ticket) {
	c.numbers++
	s.founded, s.owner, s.number, s.since, s.ticket = c.founded, c.self, c.numbers, since, t
}

// add takes in a new claim, which waits.
func (c *claims) add(s *claim, req *admission.Request, now time.Time, t *pool.Ticket) {
	c.init(s, now, t)
	s.info, s.span, s.holder = req.Info, req.Span, req.Holder
	c.waiting++
	if t == nil {
		c.requests++
	}
	c.join(s, req.Client)
}

// grant lets a waiting claim in, and returns it; nil: it was refused when the machine
// was handed its place, and is about to be cancelled.
func (c *claims) grant(g kmutex.Grant, epoch uint64) *claim {
	s := c.slots[g.Request]
	if s == nil {
		return nil
	}
	s.at = c.shared.moment()
	s.hold(g, epoch, c.shared.spans.take(g.Token))
	c.waiting--
	c.use(1)
	c.admitted(s)
	c.rate.admitted(s.at, c.waiting > 0)
	c.overtaken(s)
	s.wake()
	return s
}

// use notes that so many slots more are in use.
func (c *claims) use(more int) {
	c.inFlight += more
	c.shared.watch.Slots(c.shared.moment(), c.inFlight)
}

// overtaken counts s if one that arrived here after it was admitted before it.
// Over all gateways nobody can count that: their clocks have no order. A ticket
// of a lost gateway does not count either: it arrived by that gateway's clock.
func (c *claims) overtaken(s *claim) {
	switch {
	case s.grant.Request >= kmutex.FirstAdopted:
	case s.since.Before(c.newest):
		c.shared.watch.Overtaken()
	default:
		c.newest = s.since
	}
}

// release ends s, whatever its state.
func (c *claims) release(s *claim) {
	switch s.state {
	case slotWaiting:
		c.waiting--
		if c.remove(s) {
			delete(c.slots, s.request)
			c.want(kmutex.EventCancel, s.request)
		}
		s.wake()
	case slotGranted:
		if !s.at.IsZero() {
			c.usual = movingMean(c.usual, c.shared.moment().Sub(s.at))
		}
		c.countLast(s, c.shared.moment())
		c.use(-1)
		c.released(s)
		c.shared.spans.leave(s)
		delete(c.slots, s.request)
		c.want(kmutex.EventRelease, s.request)
	case slotLost:
	case slotEnded:
		return
	}
	s.state = slotEnded
	if s.ticket == nil {
		c.done()
	}
}

// again lets s, which holds a slot, wait for another one, ahead of all that wait here.
func (c *claims) again(s *claim) {
	s.state, s.ready = slotWaiting, make(chan struct{})
	c.waiting++
	c.countLast(s, c.shared.moment())
	c.use(-1)
	c.returned(s)
	c.want(kmutex.EventReturn, s.request)
}

// takeOut takes those that wait out of the line, and reports whether any was in it. They are due for
// places again, before others. While no upstream can be reached from here they would keep the baton, and the
// batch behind theirs would be offered every token.
func (c *claims) takeOut() bool {
	var out []*claim
	for _, s := range c.slots {
		if s.state == slotWaiting {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *claim) int { return a.since.Compare(b.since) })
	for _, s := range out {
		c.want(kmutex.EventCancel, s.request)
		delete(c.slots, s.request)
		s.request = 0
	}
	c.due = append(out, c.due...)
	return len(out) > 0
}

// done notes that a request has ended.
func (c *claims) done() {
	c.requests--
	c.idle.signal(c.requests == 0)
}

// adopt takes in the claim of a ticket that a lost gateway left.
func (c *claims) adopt(a pool.Adopted) {
	t, arrived := a.Ticket, time.Unix(0, a.Ticket.Stamp)
	s := new(claim)
	c.init(s, arrived, t)
	s.request, s.placed = a.Number, arrived
	c.slots[a.Number], c.held[t] = s, s
	if t.Granted {
		s.hold(t.Grant, t.Epoch, "")
		c.use(1)
	} else {
		c.waiting++
	}
}

// endTickets gives back the slots of tickets that have ended.
func (c *claims) endTickets(ended []*pool.Ticket) {
	for _, t := range ended {
		s := c.held[t]
		delete(c.held, t)
		c.release(s)
	}
}

// forgetTickets takes out the slots of tickets that the machine does not know.
func (c *claims) forgetTickets(gone []*pool.Ticket) {
	for _, t := range gone {
		s := c.held[t]
		delete(c.held, t)
		delete(c.slots, s.request)
		s.state = slotEnded
		c.use(-1)
	}
}

// addGuest counts a guest among what is in flight here.
func (c *claims) addGuest(g *guest) {
	c.guests[g] = struct{}{}
	c.requests++
}

// removeGuest ends what addGuest began.
func (c *claims) removeGuest(g *guest) {
	delete(c.guests, g)
	c.done()
}

// refuse ends the wait of every request with err. Tickets go on waiting.
func (c *claims) refuse(err error) {
	for _, s := range c.all() {
		if s.state == slotWaiting && s.ticket == nil {
			s.err = err
			c.release(s)
		}
	}
}

// losses returns what tells those who use slots that these are lost, once each, to be
// called without the lock.
func (c *claims) losses() (tell []func()) {
	for g := range c.guests {
		tell = append(tell, g.lose)
	}
	for _, s := range c.all() {
		if s.state == slotGranted && s.holder != nil {
			tell = append(tell, s.holder.LoseSlot)
			s.holder = nil
		}
	}
	return tell
}

// void ends all claims with their incarnation, and returns how many waiting requests were
// refused, and how many are in flight and have to end.
func (c *claims) void() (refused, inFlight int) {
	inFlight = len(c.guests)
	for _, s := range c.all() {
		switch {
		case s.state == slotWaiting:
			if s.ticket == nil { // a ticket's place is with its heirs
				refused++
			}
			s.err = admission.Isolated
			s.wake()
			s.state = slotEnded
		case s.ticket != nil: // its holder is elsewhere, and the slot goes to the successor
			s.state = slotEnded
		default:
			inFlight++
			s.state = slotLost
		}
	}
	clear(c.slots)
	clear(c.clients)
	clear(c.held)
	c.due, c.events = nil, nil
	c.use(-c.inFlight)
	c.waiting, c.requests = 0, inFlight
	c.idle.signal(c.requests == 0)
	return refused, inFlight
}
