package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// RequestTicket puts a ticket in line, where it waits as long as it lives. When
// RequestTicket returns, the ticket outlives this gateway.
func (g *Gateway) RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error) {
	p := g.pool(req.Pool)
	switch {
	case g.draining.Load():
		return admission.Ticket{}, g.refusal(req.Pool, admission.Draining)
	case p == nil:
		return admission.Ticket{}, g.refusal(req.Pool, g.missingPool(req.Pool))
	}
	tickets := ticketManager{p}
	if err := tickets.enable(ctx); err != nil {
		return admission.Ticket{}, p.refusal(err, 0)
	}
	t, err := tickets.take(req, ttl, note)
	if err != nil {
		return admission.Ticket{}, p.refusal(err, 0)
	}
	return tickets.await(ctx, t.ID, 0, anyState)
}

// TestTicket returns the ticket as soon as it is not in the state granted, or
// after wait. While it waits in line, each call is a sign of its holder, and one
// under way keeps it alive.
func (g *Gateway) TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error) {
	return g.onTicket(ctx, ticketCall{Op: opTest, ID: id, Granted: granted, Wait: wait})
}

// RenewTicket is a sign of the ticket's holder.
func (g *Gateway) RenewTicket(ctx context.Context, id string) (admission.Ticket, error) {
	return g.onTicket(ctx, ticketCall{Op: opRenew, ID: id})
}

// EndTicket gives the slot back, or leaves the line. It fails with ErrTicketUsed while a
// request uses the slot.
func (g *Gateway) EndTicket(ctx context.Context, id string) error {
	_, err := g.onTicket(ctx, ticketCall{Op: opEnd, ID: id})
	return err
}

// callLocal carries out a call for a ticket that this gateway answers for.
func (g *Gateway) callLocal(ctx context.Context, owner kmutex.Node, c ticketCall) (admission.Ticket, error) {
	p, err := g.poolOf(owner, c.ID)
	if err != nil {
		return admission.Ticket{}, err
	}
	tickets := ticketManager{p}
	switch c.Op {
	case opTest:
		return tickets.test(ctx, c)
	case opRenew:
		return tickets.renew(ctx, c.ID)
	case opUse:
		return tickets.use(ctx, c)
	case opEnd:
		return admission.Ticket{}, tickets.finish(c)
	default:
		return admission.Ticket{}, fmt.Errorf("%w: %q", admission.ErrUnknownTicket, c.Op)
	}
}

// poolOf returns the pool that has, or had, the ticket.
func (g *Gateway) poolOf(owner kmutex.Node, id string) (*poolDriver, error) {
	pending := false
	for _, p := range g.all() {
		p.mu.Lock()
		if p.alive() && p.core.Tickets() != nil {
			ts := p.core.Tickets()
			_, ended := ts.Ended(id)
			if ended || ts.Get(id) != nil {
				p.mu.Unlock()
				return p, nil
			}
			pending = pending || owner != p.self && !ts.Absorbed(owner)
		}
		p.mu.Unlock()
	}
	if pending || !g.entitled(g.views.Standing().Node) {
		return nil, admission.ErrElsewhere // not taken over yet
	}
	return nil, admission.ErrUnknownTicket
}
