package kgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Errors of tickets.
var (
	// ErrTicketEnded: the ticket was ended, has expired, or never was.
	ErrTicketEnded = errors.New("kgate: the ticket has ended")
	// ErrTicketWaiting: the ticket has no slot yet.
	ErrTicketWaiting = admission.ErrTicketWaiting
	// ErrTicketUsed: the ticket's slot is in use, or was.
	ErrTicketUsed = admission.ErrTicketUsed
	// ErrTicketElsewhere: the node that has the ticket does not answer now. Ask again.
	ErrTicketElsewhere = admission.ErrElsewhere
)

// Ticket is a place in the line of a pool, and then a slot, that outlives the node that
// gave it: it is for clients that ask now and come back later, to any node. It ends when
// its time to live passes without a sign of its holder. Each call with its ID is a sign, but
// [Node.AwaitTicket] of one that is granted already. A
// call that fails with an error other than ErrTicketEnded ends no ticket: the one that it
// returns has its ID, and nothing else. Ask again, or end it.
type Ticket struct {
	// ID is a secret: who has it holds the ticket.
	ID      string
	Pool    string
	Granted bool
	// Position in line, from 1, and the expected wait; 0: not known, or granted.
	Position int
	ETA      time.Duration
	// Left is how long the ticket lives without a further sign of its holder. A program that
	// uses a granted ticket's slot without [Node.Redeem] must stop a tenth before that.
	Left time.Duration
	// Fence of a granted ticket: see [Slot.Fence].
	Fence string
}

// RequestTicket takes a place in the line of a pool. The ticket lives for ttl, from a
// second to the pool's TicketTTL, after a sign of its holder.
func (n *Node) RequestTicket(ctx context.Context, pool string, ttl time.Duration, options ...AcquireOption) (Ticket, error) {
	if ttl < admission.MinTTL || ttl > admission.MaxTTL {
		return Ticket{}, fmt.Errorf("kgate: a ticket lives from %v to %v, not %v", admission.MinTTL, admission.MaxTTL, ttl)
	}
	by := askedBy(options)
	t, err := n.node.Tickets().RequestTicket(ctx, admission.Request{Pool: pool, Client: by.client}, ttl, by.note)
	return n.ticketOf("", pool, t, err)
}

// AwaitTicket returns a ticket once it is granted, or as it stands when wait is over.
// While it runs, the ticket does not expire in line.
func (n *Node) AwaitTicket(ctx context.Context, id string, wait time.Duration) (Ticket, error) {
	t, err := n.node.Tickets().TestTicket(ctx, id, false, wait)
	return n.ticketOf(id, "", t, err)
}

// RenewTicket is a sign of the ticket's holder, whether it is granted or not.
func (n *Node) RenewTicket(ctx context.Context, id string) (Ticket, error) {
	t, err := n.node.Tickets().RenewTicket(ctx, id)
	return n.ticketOf(id, "", t, err)
}

// EndTicket gives the ticket's slot back, or leaves the line. It fails with ErrTicketUsed
// while a request uses the slot; when that ends, so does the ticket.
func (n *Node) EndTicket(ctx context.Context, id string) error {
	return n.ticketError("", n.node.Tickets().EndTicket(ctx, id))
}

// Redeem returns the slot of a granted ticket of a pool, once, and keeps it alive until
// Release, which ends the ticket. It does not wait: see [Node.AwaitTicket]. A Redeem that
// fails otherwise than at once, as when ctx ends, may have taken the slot: then the ticket ends.
func (n *Node) Redeem(ctx context.Context, pool, id string) (*Slot, error) {
	if n.stopping.Err() != nil {
		return nil, ErrClosed
	}
	got, err := n.node.RedeemTicket(ctx, pool, id)
	if err != nil {
		return nil, n.ticketError(pool, err)
	}
	return newSlot(got, 0), nil
}

// ticketOf translates the answer to a call for the ticket id of a pool; empty: it is not
// known yet.
func (n *Node) ticketOf(id, pool string, t admission.Ticket, err error) (Ticket, error) {
	if err != nil {
		return Ticket{ID: id}, n.ticketError(pool, err)
	}
	return Ticket{ID: t.ID, Pool: t.Pool, Granted: t.Granted, Position: t.Position, ETA: t.ETA, Left: t.Left, Fence: t.Fence}, nil
}

// ticketError translates the error of a call for a ticket.
func (n *Node) ticketError(pool string, err error) error {
	var ended *admission.EndedError
	switch {
	case err == nil: // of EndTicket
		return nil
	case n.stopping.Err() != nil: // a ticket that this node does not find may well be alive
		return ErrClosed
	case errors.As(err, &ended):
		return fmt.Errorf("%w: %s", ErrTicketEnded, ended.How)
	case errors.Is(err, admission.ErrUnknownTicket):
		return ErrTicketEnded
	case errors.Is(err, ErrTicketElsewhere):
		return inside(err)
	default:
		return n.refused(pool, err)
	}
}
