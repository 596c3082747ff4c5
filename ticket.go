package kgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Errors of tickets.
var (
	// ErrTicketEnded: the ticket was cancelled, has expired, or never was.
	ErrTicketEnded = admission.ErrTicketEnded
	// ErrTicketWaiting: the ticket has no slot yet.
	ErrTicketWaiting = admission.ErrTicketWaiting
	// ErrTicketUsed: the ticket's slot is in use, or was.
	ErrTicketUsed = admission.ErrTicketUsed
	// ErrTicketElsewhere: the node that has the ticket does not answer now. Ask again.
	ErrTicketElsewhere = admission.ErrElsewhere
)

// Ticket is a place in the line of a pool, and then a slot, that outlives the node that
// gave it: it is for clients that ask now and come back later, to any node, with its ID. It ends
// when its time to live passes without a sign of its holder; each call here is one, but Wait for
// a ticket that has its slot. No error but ErrTicketEnded ends it: ask again, or Cancel it.
// Its methods are safe for concurrent use.
type Ticket struct {
	node *Node
	id   string

	mu   sync.Mutex
	last TicketState
}

// TicketState is how a ticket stood when its node last said so.
type TicketState struct {
	Pool    string // empty: not known yet
	Granted bool   // it has its slot
	// Place in line, from 1, and the expected wait; 0: not known, or granted.
	Place    int
	Expected time.Duration
	// Left is how long the ticket lives without a further sign of its holder. A program that
	// uses a granted ticket's slot without Redeem must stop a tenth before that.
	Left time.Duration
	// Fence of a granted ticket: see [Slot.Fence].
	Fence string
	// Upstream of a granted ticket: see [Slot.Upstream].
	Upstream string
}

// RequestTicket takes a place in the line of a pool. The ticket lives for ttl, from a
// second to the pool's TicketTTL, after a sign of its holder. RequestTicket waits while the node
// is not ready.
func (n *Node) RequestTicket(ctx context.Context, pool string, ttl time.Duration, options ...Option) (*Ticket, error) {
	if err := n.check(ctx); err != nil {
		return nil, err
	}
	if ttl < admission.MinTTL || ttl > admission.MaxTTL {
		return nil, fmt.Errorf("kgate: a ticket lives from %v to %v, not %v", admission.MinTTL, admission.MaxTTL, ttl)
	}
	by := askedBy(options)
	var got admission.Ticket
	request := func() (err error) {
		got, err = n.node.Tickets().RequestTicket(ctx, admission.Request{Pool: pool, Client: n.node.ClientKey(pool, by.client), Counted: by.client != ""}, ttl, by.note)
		return n.ticketError(pool, err)
	}
	err := request()
	if err != nil && n.mayPass(err) {
		err = n.whenReady(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	return &Ticket{node: n, id: got.ID, last: stateOf(got)}, nil
}

// Ticket returns the ticket that has the ID, whichever node gave it. It asks nobody.
func (n *Node) Ticket(id string) *Ticket { return &Ticket{node: n, id: id} }

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

func stateOf(t admission.Ticket) TicketState {
	return TicketState{Pool: t.Pool, Granted: t.Granted, Place: t.Position, Expected: t.ETA, Left: t.Left, Fence: t.Fence, Upstream: t.Upstream}
}

// Wait returns when the ticket has its slot. Meanwhile the ticket does not expire. It fails with
// ErrTicketEnded, ErrClosed, or the cause of ctx's end.
func (t *Ticket) Wait(ctx context.Context) error {
	const (
		longest = 30 * time.Second // of one question
		pause   = 200 * time.Millisecond
	)
	for {
		state, err := t.ask(ctx, func(ctx context.Context) (admission.Ticket, error) {
			return t.node.node.Tickets().TestTicket(ctx, t.id, false, longest)
		})
		switch {
		case err == nil && state.Granted:
			return nil
		case err == nil:
			continue
		case ctx != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, ErrTicketElsewhere) && !errors.Is(err, ErrIsolated):
			return err
		}
		select { // another node soon has it
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Renew is a sign of the ticket's holder, and returns how the ticket stands.
func (t *Ticket) Renew(ctx context.Context) (TicketState, error) {
	return t.ask(ctx, func(ctx context.Context) (admission.Ticket, error) {
		return t.node.node.Tickets().RenewTicket(ctx, t.id)
	})
}

// Redeem returns the slot of a ticket that has one, once, and keeps the ticket alive until the
// slot's Release, which ends it. It does not wait: see Wait. A Redeem that fails otherwise than
// at once, as when ctx ends, may have taken the slot: then the ticket ends.
func (t *Ticket) Redeem(ctx context.Context) (*Slot, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	pool := t.State().Pool
	if pool == "" {
		state, err := t.Renew(ctx)
		if err != nil {
			return nil, err
		}
		pool = state.Pool
	}
	o := new(owned)
	if err := t.node.node.RedeemInto(ctx, &o.got, pool, t.id, o); err != nil {
		return nil, t.node.ticketError(pool, err)
	}
	return o.given(), nil
}

// Cancel gives the ticket's slot back, or leaves the line. It is no error if the ticket has ended.
// It fails with ErrTicketUsed while a slot of Redeem is in use; its Release ends the ticket.
func (t *Ticket) Cancel(ctx context.Context) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	err := t.node.ticketError(t.State().Pool, t.node.node.Tickets().EndTicket(ctx, t.id))
	if errors.Is(err, ErrTicketEnded) {
		return nil
	}
	return err
}

func (t *Ticket) check(ctx context.Context) error {
	if t == nil || t.id == "" {
		return errNoTicket
	}
	return t.node.check(ctx)
}

// ask makes a call about the ticket, and notes the answer.
func (t *Ticket) ask(ctx context.Context, call func(context.Context) (admission.Ticket, error)) (TicketState, error) {
	if err := t.check(ctx); err != nil {
		return t.State(), err
	}
	got, err := call(ctx)
	if err != nil {
		return t.State(), t.node.ticketError(t.State().Pool, err)
	}
	state := stateOf(got)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = state
	return state, nil
}

// ticketError translates the error of a call for a ticket.
func (n *Node) ticketError(pool string, err error) error {
	switch {
	case err == nil: // of EndTicket
		return nil
	case n.stopping.Err() != nil: // a ticket that this node does not find may well be alive
		return ErrClosed
	case errors.Is(err, ErrTicketEnded):
		return err
	case errors.Is(err, admission.ErrUnknownTicket):
		return ErrTicketEnded
	case errors.Is(err, ErrTicketElsewhere):
		return outside(err)
	default:
		return n.refused(pool, err)
	}
}
