package gateway

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// RequestTicket puts a ticket in line, where it waits as long as it lives. When
// RequestTicket returns, the ticket outlives this gateway. It fails with ErrTTL if the pool's
// tickets live less long.
func (g *Gateway) RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error) {
	p, err := g.ready(req.Pool)
	switch {
	case err != nil:
		return admission.Ticket{}, err
	case g.hurried.Load():
		return admission.Ticket{}, p.refused(admission.Draining)
	}
	if longest := cmp.Or(g.limitsOf(req.Pool).TicketTTL, admission.DefaultTicketTTL); ttl > longest {
		return admission.Ticket{}, fmt.Errorf("%w: %v is more than the %v that pool %s allows; renew the ticket for as long as you need it",
			admission.ErrTTL, ttl, longest, req.Pool)
	}
	tickets := ticketManager{p}
	if err := tickets.enable(ctx, ttl); err != nil {
		return admission.Ticket{}, p.refused(err)
	}
	t, err := tickets.take(req, ttl, note)
	if err != nil {
		return admission.Ticket{}, p.refused(err)
	}
	out, err := tickets.await(ctx, t.ID, 0, nil)
	if err != nil { // nobody learns of the ticket, so nobody would end it
		_ = tickets.finish(ticketCall{ID: t.ID})
		return admission.Ticket{}, p.refused(err)
	}
	return out, nil
}

// TestTicket returns the ticket as soon as it is not in the state granted, or
// after wait. While it waits in line, each call is a sign of its holder, and one
// under way keeps it alive.
func (g *Gateway) TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error) {
	return g.tickets.do(ctx, ticketCall{Op: opTest, ID: id, Granted: granted, Wait: wait})
}

// RenewTicket is a sign of the ticket's holder.
func (g *Gateway) RenewTicket(ctx context.Context, id string) (admission.Ticket, error) {
	return g.tickets.do(ctx, ticketCall{Op: opRenew, ID: id})
}

// EndTicket gives the slot back, or leaves the line. It fails with ErrTicketUsed while a
// request uses the slot.
func (g *Gateway) EndTicket(ctx context.Context, id string) error {
	_, err := g.tickets.do(ctx, ticketCall{Op: opEnd, ID: id})
	return err
}

// HandOverTickets tells the successors how much of its time each ticket has left. It is
// for a gateway that is about to leave in order, after Drain. If ctx ends before the
// successors know it, they may give a ticket a whole time to live.
func (g *Gateway) HandOverTickets(ctx context.Context) error {
	pools := g.all()
	for _, p := range pools {
		p.event(func() { p.apply(p.core.HandOver(p.clock())) })
	}
	for _, p := range pools {
		if err := (ticketManager{p}).awaitSynced(ctx); err != nil {
			return fmt.Errorf("tickets of pool %s: %w", p.name, err)
		}
	}
	return nil
}
