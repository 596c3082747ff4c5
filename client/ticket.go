package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Ticket is a place in the line of a pool, and then a slot, that outlives the gateway that gave
// it: it is for who asks now and comes back later, with its ID. It ends when its time to live
// passes without a sign of its holder; each call here is one, but Wait for a ticket that has its
// slot. No error but ErrTicketEnded ends it: ask again, or Cancel it. Its methods are safe for
// concurrent use. They are those of a kgate.Ticket.
type Ticket struct {
	c  *Client
	id string

	redeeming sync.Mutex           // held during Redeem
	slot      atomic.Pointer[Slot] // of Redeem; nil: none

	mu   sync.Mutex // guards what follows
	last TicketState
	// signed is when the last request was sent that the gateway has surely taken
	// for a sign of the holder: no question that found the ticket granted.
	signed time.Time
}

// TicketState is how a ticket stood when a gateway last said so.
type TicketState struct {
	Pool    string // empty: not known yet
	Granted bool   // it has its slot
	// Place in line, from 1, and the expected wait; 0: not known, or granted.
	Place    int
	Expected time.Duration
	// Left is how long the ticket lives without a further sign of its holder: its time to live, or
	// less where the pool bounds how long a slot may be held. A program that uses a granted
	// ticket's slot without Redeem must stop a tenth before that.
	Left time.Duration
	// Fence of a granted ticket: see [Slot.Fence].
	Fence string
	// Upstream of a granted ticket: see [Slot.Upstream].
	Upstream string
}

// ID names the ticket. It is a secret: who has it holds the ticket.
func (t *Ticket) ID() string {
	if t == nil {
		return ""
	}
	return t.id
}

// State returns how the ticket stood at the last call that did not fail. It asks nobody.
func (t *Ticket) State() TicketState {
	if t == nil {
		return TicketState{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Wait returns when the ticket has its slot. Meanwhile the ticket does not expire. While no gateway
// can tell, Wait tries again, for a whole TTL. It fails with ErrTicketEnded, ErrUnreachable,
// ErrUnavailable, or the cause of ctx's end.
func (t *Ticket) Wait(ctx context.Context) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	// Short enough that the last sign is a recent one when the slot comes.
	longest := min(t.c.cfg.TTL/3, maxPoll)
	q := call{method: http.MethodGet, query: url.Values{"wait": {longest.String()}}.Encode(), within: longest}
	for heard := time.Now(); ; {
		asked := time.Now()
		state, err := t.ask(ctx, q)
		switch {
		case err == nil && state.Granted:
			return nil
		case err == nil:
			heard = asked
			if state.Place > 0 {
				t.c.cfg.OnWait(state.Place, state.Expected)
			}
			continue
		case ctx.Err() != nil || !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrUnavailable) || time.Since(heard) > t.c.cfg.TTL:
			return err
		}
		if !pause(ctx, t.c.retry()) {
			return context.Cause(ctx)
		}
	}
}

// Renew is a sign of the ticket's holder, and returns how the ticket stands.
func (t *Ticket) Renew(ctx context.Context) (TicketState, error) {
	return t.ask(ctx, call{method: http.MethodPut})
}

// check returns why nothing can be asked about the ticket.
func (t *Ticket) check(ctx context.Context) error {
	if t == nil || t.id == "" {
		return errNoTicket
	}
	return t.c.check(ctx)
}

// ask makes a call about the ticket, and notes the answer. A gateway that is silent must leave time
// for another one.
func (t *Ticket) ask(ctx context.Context, q call) (TicketState, error) {
	if err := t.check(ctx); err != nil {
		return t.State(), err
	}
	q.path, q.within = pathOf(t.id), q.within+min(answerIn, t.c.cfg.TTL/3)
	d, sent, err := t.c.ticket(ctx, q)
	if err != nil {
		return t.State(), err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last = d.state(); !t.last.Granted || q.method == http.MethodPut {
		t.signed = sent
	}
	return t.last, nil
}

// Redeem returns the slot of a ticket that has one, once, and keeps the ticket alive until the
// slot's Release, which ends it. It does not wait: see Wait. It does not see that another program
// redeems the same ID.
func (t *Ticket) Redeem(ctx context.Context) (*Slot, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	t.redeeming.Lock()
	defer t.redeeming.Unlock()
	if t.slot.Load() != nil {
		return nil, ErrTicketUsed
	}
	s, err := t.hold(ctx)
	if err != nil {
		return nil, err
	}
	t.slot.Store(s)
	return s, nil
}

// hold makes a slot of a granted ticket.
func (t *Ticket) hold(ctx context.Context) (*Slot, error) {
	if !t.State().Granted {
		if state, err := t.Renew(ctx); err != nil {
			return nil, err
		} else if !state.Granted {
			return nil, ErrTicketWaiting
		}
	}
	t.mu.Lock()
	s := newSlot(t.c, t.id, t.last, t.signed)
	t.mu.Unlock()
	if time.Since(s.confirmed) > s.term()/2 {
		// Too little is left to begin with. Nobody relies on the slot yet, so it
		// need not be in time.
		if err := s.renew(ctx, time.Now().Add(s.ttl)); err != nil {
			return nil, err
		}
	}
	s.start()
	return s, nil
}

// Cancel gives the ticket's slot back, or leaves the line. It is no error if the ticket has ended.
// It fails with ErrTicketUsed while a slot of Redeem is in use, or a request at a gateway; its
// end ends the ticket.
func (t *Ticket) Cancel(ctx context.Context) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	if s := t.slot.Load(); s != nil && !s.over() {
		return ErrTicketUsed
	}
	return t.c.end(ctx, t.id)
}

// acquire waits until ctx ends, then leaves the line.
func (t *Ticket) acquire(ctx context.Context) (s *Slot, err error) {
	if !t.State().Granted {
		err = t.Wait(ctx)
	}
	if err == nil {
		s, err = t.Redeem(ctx)
	}
	if err != nil && !errors.Is(err, ErrTicketEnded) {
		// Where nobody answers, it ends by itself.
		if e := t.Cancel(context.WithoutCancel(ctx)); e != nil {
			t.c.cfg.Logger.Warn("ticket cannot be cancelled", slog.Any("error", e))
		}
	}
	return s, err
}
