package gateway

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// claim is a request's or a ticket's claim on a slot: first in line, then in the
// critical section. The pool has it under its lock.
type claim struct {
	client *client // nil if the pool does not distinguish clients
	since  time.Time
	// position among those that waited here when it asked.
	position int
	// owner and number name it for good.
	owner  kmutex.Node
	number uint64
	info   *admission.RequestInfo // nil: nothing is known

	request kmutex.Request // 0: it waits for a place in line
	placed  time.Time      // when its place was taken
	state   claimState
	grant   kmutex.Grant
	at      time.Time // when it was granted here
	epoch   uint64    // in which it was granted
	// founded says when the cluster was, for the fence.
	founded int64
	err     error         // why the wait ended without a grant
	ready   chan struct{} // closed when the wait is over; nil if it never began
	abort   func()        // see Slot.OnLost; nil once it is called
	ticket  *pool.Ticket  // whose slot it is; nil: a request's
	span    string        // see admission.Request
	after   string        // see admission.GrantInfo
}

type claimState uint8

const (
	slotWaiting claimState = iota
	slotGranted
	slotEnded
	slotLost // with its incarnation, but its holder has not ended yet
)

// wake ends the wait.
func (s *claim) wake() {
	if s.ready != nil {
		close(s.ready)
	}
}

// fence is Slot.Fence.
func (s *claim) fence(pool string) string {
	b := make([]byte, 0, len(pool)+40)
	b = append(append(b, pool...), '/')
	b = append(strconv.AppendInt(b, s.founded, 10), '/')
	b = append(strconv.AppendUint(b, s.epoch, 10), '/')
	return string(strconv.AppendUint(b, s.grant.Serial, 10))
}

// grantInfo describes how the slot was granted.
func (s *claim) grantInfo() admission.GrantInfo {
	return admission.GrantInfo{Position: s.position, Token: int(s.grant.Token), Epoch: s.epoch, Serial: s.grant.Serial, After: s.after}
}

// takeAbort returns what tells the holder that the slot is lost, for one call; nil if
// there is nothing to call.
func (s *claim) takeAbort() (abort func()) {
	abort, s.abort = s.abort, nil
	return abort
}

// release ends s, whatever its state. The caller holds the lock.
func (p *poolDriver) release(s *claim) {
	switch s.state {
	case slotGranted:
		p.end(s, kmutex.EventRelease)
	case slotWaiting:
		p.end(s, kmutex.EventCancel)
	case slotLost:
		s.state = slotEnded
		p.done()
	case slotEnded:
	}
}

// done notes that a request has ended. The caller holds the lock.
func (p *poolDriver) done() {
	p.requests--
	p.idle.signal(p.requests == 0)
}

// queue takes in a new claim, a request's or a ticket's. It waits then, and gets its
// place in line by the caller's placeDue or placeSoon, unless another one of its client
// has to come first. The caller holds the lock.
func (p *poolDriver) queue(s *claim, req admission.Request, held *pool.Ticket) error {
	switch {
	case p.env.draining.Load():
		return admission.Draining
	case !p.alive(), !p.env.entitled(p.self):
		return admission.Isolated
	case p.atLimit(req.Client):
		return &admission.Refusal{Reason: admission.ClientLimit, Limit: p.cfg.ClientLimit}
	case p.waiting >= p.cfg.QueueLimit:
		return admission.QueueFull
	}
	p.endPull()
	p.init(s, p.env.now(), held)
	s.info, s.span = req.Info, req.Span
	p.waiting++
	if held == nil {
		p.requests++
	}
	p.join(s, req.Client)
	return nil
}

// placeDue gives those their places in line that are due. The caller holds the lock.
func (p *poolDriver) placeDue() {
	for len(p.due) > 0 { // who comes in makes others due
		p.step(p.place(p.nextDue(), p.env.now()))
	}
}

// placeNow is placeDue for s, which queue has just taken in. The caller holds the lock.
func (p *poolDriver) placeNow(s *claim) {
	p.placeDue()
	if s.state == slotWaiting && p.waiting == 1 {
		p.rate.begins(s.since)
	}
}

// placeSoon is placeDue on another goroutine. The caller holds the lock, and others wait
// in line already. Whoever has arrived by then has its time of arrival and its turn to get a
// place: they are in the order in which the callers have had the lock.
//
// What leads into the line needs more stack than the wait for a slot, and the runtime
// does not shrink a stack of 8 KiB again: so who is going to wait does not do it.
func (p *poolDriver) placeSoon() {
	if p.placing || len(p.due) == 0 || p.env.ctx.Err() != nil {
		return
	}
	p.placing = true
	p.env.wg.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.placing = false
		if p.alive() {
			p.placeDue()
		}
	})
}

// init makes s a new claim. The caller holds the lock.
func (p *poolDriver) init(s *claim, since time.Time, held *pool.Ticket) {
	p.numbers++
	s.founded, s.owner, s.number, s.since, s.ticket = p.view.Founded, p.self, p.numbers, since, held
}

// end takes s out of the pool, by releasing or cancelling its ticket. The caller
// holds the pool's lock.
func (p *poolDriver) end(s *claim, how kmutex.EventKind) {
	ends := true
	if s.state == slotWaiting {
		p.waiting--
		ends = p.remove(s)
		s.wake()
	} else {
		p.use(-1)
		p.released(s)
		p.leaveSpan(s)
	}
	if s.ticket == nil {
		p.done()
	}
	s.state = slotEnded
	if ends {
		delete(p.slots, s.request)
		p.step(kmutex.Event{Kind: how, Request: s.request})
	} else {
		p.placeDue() // another one of its client
	}
}

// grant lets a waiting slot in. The caller holds the pool's lock.
func (p *poolDriver) grant(grant kmutex.Grant) {
	s := p.slots[grant.Request]
	if p.pullGranted(grant.Request) {
		return
	}
	if s == nil {
		return // refused when it was handed over, and about to be cancelled
	}
	s.state, s.grant, s.epoch, s.at = slotGranted, grant, p.spec.Epoch, p.env.now()
	p.waiting--
	p.use(1)
	p.admitted(s)
	p.rate.admitted(s.at, p.waiting > 0)
	p.overtaken(s)
	s.after = p.links.take(grant.Token)
	s.wake()
	if s.ticket != nil {
		p.granted = append(p.granted, s)
	}
}

// use notes that so many slots more are in use. The caller holds the pool's lock.
func (p *poolDriver) use(more int) {
	p.inFlight += more
	p.watch.Slots(p.inFlight)
}

// adopt makes the slot of a ticket that a lost gateway left. The caller holds the
// lock.
func (p *poolDriver) adopt(i pool.Adopted) {
	t, arrived := i.Ticket, time.Unix(0, i.Ticket.Stamp)
	s := new(claim)
	p.init(s, arrived, t)
	s.request, s.placed = i.Number, arrived
	p.slots[i.Number], p.held[t] = s, s
	if t.Granted {
		s.state, s.epoch, s.grant = slotGranted, t.Epoch, t.Grant
		p.use(1)
	} else {
		p.waiting++
	}
}

// endTickets gives back the slots of tickets that have ended. The caller holds the
// lock.
func (p *poolDriver) endTickets(ended []*pool.Ticket) {
	for _, t := range ended {
		s := p.held[t]
		delete(p.held, t)
		p.release(s)
	}
}

// forgetTickets takes out the slots of tickets that the machine does not know. The
// caller holds the lock.
func (p *poolDriver) forgetTickets(gone []*pool.Ticket) {
	for _, t := range gone {
		s := p.held[t]
		delete(p.held, t)
		delete(p.slots, s.request)
		s.state = slotEnded
		p.use(-1)
	}
}

// refusal returns the error of a request that waited at position, or did not. The
// caller does not hold the lock.
func (p *poolDriver) refusal(err error, position int) error {
	reason := admission.Reason("")
	if !errors.As(err, &reason) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.spec.K
	if bound := (*admission.Refusal)(nil); errors.As(err, &bound) {
		limit = bound.Limit // which of them was reached
	}
	return &admission.Refusal{Reason: reason, RetryAfter: p.rate.wait(p.env.now(), p.waiting), Limit: limit, Position: position}
}

// id names a slot: POOL.NODE.NUMBER.
func (s *claim) id(pool string) string {
	return fmt.Sprintf("%s.%d.%d", pool, s.owner, s.number)
}
