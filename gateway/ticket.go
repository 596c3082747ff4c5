package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Errors of the ticket methods, beside those of Acquire.
var (
	// ErrUnknownTicket: nobody knows of such a ticket.
	ErrUnknownTicket = errors.New("gateway: unknown ticket")
	// ErrElsewhere: the gateway that has the ticket cannot be asked now.
	ErrElsewhere = errors.New("gateway: the ticket's gateway does not answer")
	// ErrTicketWaiting: the ticket has no slot yet.
	ErrTicketWaiting = errors.New("gateway: the ticket is still waiting")
	// ErrTicketUsed: a request is or was in flight on the ticket's slot.
	ErrTicketUsed = errors.New("gateway: the ticket has been used")
)

// Ending says how a ticket ended.
type Ending string

// The endings.
const (
	EndReleased  Ending = "released"  // by its holder
	EndCancelled Ending = "cancelled" // by its holder, while it waited
	EndExpired   Ending = "expired"   // no sign of its holder within its time to live
	EndHoldMax   Ending = "hold-max"  // it has had its slot for as long as it may
	EndLost      Ending = "lost"      // with the gateways that knew of it
)

// EndedError says that a ticket has ended.
type EndedError struct{ How Ending }

// Error implements error.
func (e *EndedError) Error() string { return "gateway: the ticket has ended: " + string(e.How) }

// Ticket is a place in a pool's line, and then a slot, that needs no connection
// and outlives the gateway that took it in.
type Ticket struct {
	// ID is a secret: who has it holds the ticket.
	ID      string
	Pool    string
	Granted bool
	TTL     time.Duration
	// Position in the line, from 1, and the wait that is to be expected; 0 where
	// they are not known, or when granted.
	Position int
	ETA      time.Duration
	// Fence of a granted ticket.
	Fence string
	Entry Entry
	// Arrived is when it was taken in; Place names it in listings of the line, and
	// is no secret.
	Arrived time.Time
	Place   string
	// Left is how long it lives without a further sign of its holder.
	Left time.Duration
}

// RequestTicket puts a ticket in line, where it waits as long as it lives. When
// RequestTicket returns, the ticket outlives this gateway.
func (g *Gateway) RequestTicket(ctx context.Context, ask Ask, ttl time.Duration, note string) (Ticket, error) {
	p := g.pool(ask.Pool)
	if p == nil {
		_, err := g.Acquire(ctx, Ask{Pool: ask.Pool})
		if err == nil {
			err = ErrIsolated
		}
		return Ticket{}, err
	}
	if g.draining.Load() {
		return Ticket{}, ErrDraining
	}
	d, err := p.openDesk(ctx)
	if err != nil {
		return Ticket{}, err
	}
	p.mu.Lock()
	t, err := d.take(ask, ttl, note)
	p.mu.Unlock()
	if err != nil {
		return Ticket{}, err
	}
	return d.await(ctx, t.id, 0, func(*ticket) bool { return true })
}

// openDesk makes the agreed view say that the pool has tickets, if it is the
// first; from then on what lost gateways leave is looked after.
func (p *pool) openDesk(ctx context.Context) (*desk, error) {
	for {
		changed := p.g.cfg.Views.Changed()
		p.mu.Lock()
		d, alive := p.desk, p.alive()
		p.mu.Unlock()
		if !alive {
			return nil, ErrIsolated
		}
		if d != nil {
			return d, nil
		}
		if err := p.g.cfg.Views.UseTickets(ctx, p.name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIsolated, err)
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // the view is here, this pool has not followed yet
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TestTicket returns the ticket as soon as it is not in the state granted, or
// after wait. While it waits in line, each call is a sign of its holder, and one
// under way keeps it alive.
func (g *Gateway) TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (Ticket, error) {
	return g.onTicket(ctx, ticketCall{Op: opTest, ID: id, Granted: granted, Wait: wait})
}

// RenewTicket is a sign of the ticket's holder.
func (g *Gateway) RenewTicket(ctx context.Context, id string) (Ticket, error) {
	return g.onTicket(ctx, ticketCall{Op: opRenew, ID: id})
}

// EndTicket gives the slot back, or leaves the line.
func (g *Gateway) EndTicket(ctx context.Context, id string) error {
	_, err := g.onTicket(ctx, ticketCall{Op: opEnd, ID: id})
	return err
}

// here carries out a call for a ticket that this gateway answers for.
func (g *Gateway) here(ctx context.Context, owner kmutex.Node, c ticketCall) (Ticket, error) {
	d, err := g.deskOf(owner, c.ID)
	if err != nil {
		return Ticket{}, err
	}
	switch c.Op {
	case opTest:
		return d.test(ctx, c)
	case opRenew:
		return d.await(ctx, c.ID, 0, func(t *ticket) bool { d.sign(t); return true })
	case opUse:
		return d.use(ctx, c.ID)
	case opEnd:
		return Ticket{}, d.finish(c.ID)
	default:
		return Ticket{}, fmt.Errorf("%w: %q", ErrUnknownTicket, c.Op)
	}
}

// deskOf returns the desk that has, or had, the ticket.
func (g *Gateway) deskOf(owner kmutex.Node, id string) (*desk, error) {
	pending := false
	for _, p := range g.all() {
		p.mu.Lock()
		d := p.desk
		if d != nil {
			_, ended := d.ended.how[id]
			if ended || d.tickets[id] != nil {
				p.mu.Unlock()
				return d, nil
			}
			pending = pending || owner != p.self && !d.absorbed(owner)
		}
		p.mu.Unlock()
	}
	if pending || !g.entitled(g.cfg.Views.Standing().Node) {
		return nil, ErrElsewhere // not taken over yet
	}
	return nil, ErrUnknownTicket
}

func (d *desk) absorbed(n kmutex.Node) bool {
	for _, a := range d.table.Absorbed() {
		if a.Node == n {
			return true
		}
	}
	return false
}

// find returns a ticket. The caller holds the pool's lock.
func (d *desk) find(id string) (*ticket, error) {
	if !d.pool.alive() || !d.pool.g.entitled(d.pool.self) {
		return nil, ErrElsewhere
	}
	if t := d.tickets[id]; t != nil {
		return t, nil
	}
	if how, known := d.ended.how[id]; known {
		return nil, &EndedError{how}
	}
	return nil, ErrUnknownTicket
}

// await returns the ticket when ready holds, or after wait, as soon as its
// successors know of that state. If one of them does not answer for long, the
// ticket is out of reach: soon that one is suspended.
func (d *desk) await(ctx context.Context, id string, wait time.Duration, ready func(*ticket) bool) (Ticket, error) {
	const patience = 5 * time.Second
	over := wait <= 0
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	if over {
		timeout.Reset(patience)
	}
	for {
		d.pool.mu.Lock()
		t, err := d.find(id)
		if err != nil {
			d.pool.mu.Unlock()
			return Ticket{}, err
		}
		if (ready(t) || over) && d.synced(t) {
			out := d.describe(t)
			d.pool.mu.Unlock()
			return d.place(ctx, out, t.stamp), nil
		}
		moved := d.moved.wait()
		d.pool.mu.Unlock()
		select {
		case <-moved:
		case <-timeout.C:
			if over {
				return Ticket{}, ErrElsewhere
			}
			over = true
			timeout.Reset(patience)
		case <-ctx.Done():
			return Ticket{}, context.Cause(ctx)
		}
	}
}

func (d *desk) test(ctx context.Context, c ticketCall) (Ticket, error) {
	count := func(by int) {
		d.pool.mu.Lock()
		defer d.pool.mu.Unlock()
		if t := d.tickets[c.ID]; t != nil && t.slot.state == slotWaiting {
			t.tests = max(0, t.tests+by)
			d.sign(t)
		} else if t != nil {
			t.tests = 0
		}
	}
	count(1)
	defer count(-1)
	return d.await(ctx, c.ID, c.Wait, func(t *ticket) bool { return (t.slot.state == slotGranted) != c.Granted })
}

// use lets one request have the ticket's slot, and no other ever.
func (d *desk) use(ctx context.Context, id string) (Ticket, error) {
	d.pool.mu.Lock()
	t, err := d.find(id)
	switch {
	case err != nil:
	case t.slot.state != slotGranted:
		err = ErrTicketWaiting
	case t.used:
		err = ErrTicketUsed
	default:
		t.used = true
		d.sign(t)
		d.note(t)
	}
	d.pool.mu.Unlock()
	if err != nil {
		return Ticket{}, err
	}
	return d.await(ctx, id, 0, func(*ticket) bool { return true })
}

// finish ends a ticket on its holder's word.
func (d *desk) finish(id string) error {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	t, err := d.find(id)
	if err != nil {
		return err
	}
	how := EndReleased
	if t.slot.state == slotWaiting {
		how = EndCancelled
	}
	d.end(t, how)
	return nil
}

// describe says how t stands. The caller holds the pool's lock.
func (d *desk) describe(t *ticket) Ticket {
	out := Ticket{ID: t.id, Pool: d.pool.name, TTL: t.ttl, Left: t.expires.Sub(d.pool.g.now()), Arrived: t.slot.since, Place: t.slot.id()}
	if t.slot.state == slotGranted {
		out.Granted, out.Fence, out.Entry = true, t.slot.Fence(), t.slot.Entry()
	}
	return out
}
