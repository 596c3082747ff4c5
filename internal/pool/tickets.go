package pool

import (
	"container/heap"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// This file has the events of tickets. The pool decides when a ticket ends, what goes to
// the successors and what its holder may be shown. The driver has the ticket's slot, as
// it has those of requests, and gives it back when [Effects].Ended says so.

// Tickets returns this incarnation's tickets; nil: the pool has none, or the disk has not
// been read yet.
func (p *Pool) Tickets() *Tickets { return p.tickets }

// Keep begins to keep a ticket that its driver has put in line: not before
// [Pool.TicketGranted], if it was granted at once.
func (p *Pool) Keep(now time.Duration, t *Ticket) *Effects {
	p.fx.reset()
	t.sign(now)
	if !t.Granted {
		p.note(now, t)
	}
	p.tickets.keep(t)
	return p.done(now)
}

// TicketGranted notes that t has its slot; wall is the time by the wall clock, in
// nanoseconds.
func (p *Pool) TicketGranted(now time.Duration, wall int64, t *Ticket, g kmutex.Grant) *Effects {
	p.fx.reset()
	t.Granted, t.Grant, t.Epoch = true, g, p.installed
	if t.waiters > 0 { // its holder is waiting here: a sign that is not noted yet
		t.sign(now)
	}
	if t.HoldMax > 0 {
		t.ends, t.endsAt = now+t.HoldMax, wall+int64(t.HoldMax)
		t.Expires = min(t.Expires, t.ends)
	}
	p.note(now, t)
	return p.done(now)
}

// Sign notes a sign of t's holder.
func (p *Pool) Sign(now time.Duration, t *Ticket) *Effects {
	p.fx.reset()
	recorded := t.silent || p.handingOver
	t.sign(now)
	if recorded { // that there was none since, or what was left at the last one
		p.note(now, t)
	} else {
		heap.Fix(&p.tickets.due, t.index)
	}
	return p.done(now)
}

// HandOver records how much time each ticket has left, because this gateway is about to
// leave in order. The successor counts from that; otherwise an abandoned ticket would get
// a whole time to live with each restart. From now on each sign of a holder is recorded,
// too, so that no holder relies on what the successors do not know. It may be called again.
func (p *Pool) HandOver(now time.Duration) *Effects {
	p.fx.reset()
	if p.tickets != nil && !p.handingOver {
		p.handingOver = true
		for _, t := range slices.Clone(p.tickets.due) {
			if t.waiters > 0 { // its holder is waiting here: a sign that is not noted yet
				t.sign(now)
			}
			p.note(now, t)
		}
	}
	return p.done(now)
}

// Await notes that a call of a waiting ticket's holder begins to wait (1) or has ended
// (-1). While one waits the ticket does not expire.
func (p *Pool) Await(now time.Duration, t *Ticket, by int) *Effects {
	if t.Granted {
		p.fx.reset()
		t.waiters = 0
		return &p.fx
	}
	t.waiters = max(0, t.waiters+by)
	return p.Sign(now, t)
}

// Use gives the ticket's slot to one request, and never to another. The call that asks for
// it has a unique name: when its answer is lost it asks again, here or at the successor,
// and gets the same answer. Use fails with admission.ErrTicketWaiting or
// admission.ErrTicketUsed, or if the name is empty or too long.
func (p *Pool) Use(now time.Duration, t *Ticket, call string) (*Effects, error) {
	p.fx.reset()
	switch {
	case !t.Granted:
		return &p.fx, admission.ErrTicketWaiting
	case call == "" || len(call) > replication.MaxUsedBy:
		return &p.fx, errCall
	case t.UsedBy != "" && t.UsedBy != call:
		return &p.fx, admission.ErrTicketUsed
	}
	t.UsedBy = call
	t.sign(now)
	p.note(now, t)
	return p.done(now), nil
}

// Return has t wait again, whose slot was of no use to the request of this call; its driver has the
// claim wait again, too. It fails with admission.ErrTicketUsed if another call, or none, has the slot.
func (p *Pool) Return(now time.Duration, t *Ticket, call string) (*Effects, error) {
	p.fx.reset()
	if !t.Granted || call == "" || call != t.UsedBy {
		return &p.fx, admission.ErrTicketUsed
	}
	t.Granted, t.Grant, t.Epoch, t.UsedBy = false, kmutex.Grant{}, 0, ""
	t.ends, t.endsAt = 0, 0
	t.sign(now)
	p.note(now, t)
	return p.done(now), nil
}

// Finish ends t. If its holder asks for that, call is empty. A slot that a request uses
// belongs to that request: only its own call may end it, or the ticket's time to live.
// Other calls fail with admission.ErrTicketUsed.
func (p *Pool) Finish(now time.Duration, t *Ticket, call string) (*Effects, error) {
	p.fx.reset()
	if call != t.UsedBy {
		return &p.fx, admission.ErrTicketUsed
	}
	how := admission.EndReleased
	if !t.Granted {
		how = admission.EndCancelled
	}
	p.endTicket(t, how)
	return p.done(now), nil
}

// Written takes in that the disk has the table up to a version, and so many of the pushes that
// have been received, or gave up on it.
func (p *Pool) Written(now time.Duration, version, received uint64) *Effects {
	p.fx.reset()
	p.tickets.written = version
	p.again = slices.DeleteFunc(p.again, func(r retry) bool {
		written := r.letter.unwritten > 0 && r.letter.unwritten <= received
		if written {
			r.letter.unwritten = 0
			p.post(r.letter)
		}
		return written
	})
	return p.done(now)
}
