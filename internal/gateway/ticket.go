package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
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
type Ending = pool.Ending

// The endings.
const (
	EndReleased  = pool.EndReleased
	EndCancelled = pool.EndCancelled
	EndExpired   = pool.EndExpired
	EndHoldMax   = pool.EndHoldMax
	EndLost      = pool.EndLost
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
	// Grant of a granted ticket. Other gateways know it as Entry.
	Grant admission.GrantInfo `json:"Entry"`
	// Arrived is when it was taken in; Place names it in listings of the line, and
	// is no secret.
	Arrived time.Time
	Place   string
	// Left is the term that its holder is promised without a further sign, in the
	// sense of package drift: the holder must stop a tenth before that.
	Left time.Duration
}

// RequestTicket puts a ticket in line, where it waits as long as it lives. When
// RequestTicket returns, the ticket outlives this gateway.
func (g *Gateway) RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (Ticket, error) {
	p := g.pool(req.Pool)
	switch {
	case g.draining.Load():
		return Ticket{}, g.refusal(req.Pool, admission.Draining, 0)
	case p == nil:
		return Ticket{}, g.refusal(req.Pool, g.missingPool(req.Pool), 0)
	}
	if err := p.openTickets(ctx); err != nil {
		return Ticket{}, p.refusal(err, 0)
	}
	t, err := p.takeTicket(req, ttl, note)
	if err != nil {
		return Ticket{}, p.refusal(err, 0)
	}
	return p.awaitTicket(ctx, t.ID, 0, now)
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
	p, err := g.poolOf(owner, c.ID)
	if err != nil {
		return Ticket{}, err
	}
	switch c.Op {
	case opTest:
		return p.testTicket(ctx, c)
	case opRenew:
		return p.renewTicket(ctx, c.ID)
	case opUse:
		return p.useTicket(ctx, c)
	case opEnd:
		return Ticket{}, p.finishTicket(c.ID)
	default:
		return Ticket{}, fmt.Errorf("%w: %q", ErrUnknownTicket, c.Op)
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
	if pending || !g.entitled(g.cfg.Views.Standing().Node) {
		return nil, ErrElsewhere // not taken over yet
	}
	return nil, ErrUnknownTicket
}
