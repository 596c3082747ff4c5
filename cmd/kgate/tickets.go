package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/proxy"
)

var (
	_ admin.Tickets = ticketDesk{}
	_ proxy.Tickets = redeemer{}
	_ proxy.Slot    = (*gateway.Redeemed)(nil)
)

// ticketDesk gives the ticket API the gateway's tickets.
type ticketDesk struct{ n *node }

// Request implements admin.Tickets.
func (t ticketDesk) Request(ctx context.Context, q admin.TicketRequest) (admin.Ticket, error) {
	got, err := t.n.gateway.RequestTicket(ctx, proxy.TicketRequest(ctx, q.Pool), q.TTL, q.Note)
	if errors.Is(err, gateway.ErrUnknownPool) {
		var names []string
		for _, p := range t.n.gateway.Pools() {
			names = append(names, p.Name)
		}
		return admin.Ticket{}, fmt.Errorf("%w: there is no such pool; there are: %s", admin.ErrUnknown, strings.Join(names, ", "))
	}
	return shownTicket(got), ticketError(err)
}

// Test implements admin.Tickets.
func (t ticketDesk) Test(ctx context.Context, id string, while admin.TicketState, wait time.Duration) (admin.Ticket, error) {
	got, err := t.n.gateway.TestTicket(ctx, id, while == admin.TicketGranted, wait)
	return shownTicket(got), ticketError(err)
}

// Renew implements admin.Tickets.
func (t ticketDesk) Renew(ctx context.Context, id string) (admin.Ticket, error) {
	got, err := t.n.gateway.RenewTicket(ctx, id)
	return shownTicket(got), ticketError(err)
}

// End implements admin.Tickets.
func (t ticketDesk) End(ctx context.Context, id string) error {
	return ticketError(t.n.gateway.EndTicket(ctx, id))
}

func shownTicket(t gateway.Ticket) admin.Ticket {
	state := admin.TicketWaiting
	if t.Granted {
		state = admin.TicketGranted
	}
	return admin.Ticket{
		ID: t.ID, Pool: t.Pool, State: state, TTL: t.TTL, Position: t.Position, ETA: t.ETA,
		Arrived: t.Arrived, Place: t.Place,
		Fence: t.Fence, Expires: time.Now().Add(t.Left),
	}
}

// ticketError says what went wrong in the words of the ticket API.
func ticketError(err error) error {
	var ended *gateway.EndedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return &admin.GoneError{Reason: admin.Reason(ended.How)}
	case errors.Is(err, gateway.ErrUnknownTicket):
		return fmt.Errorf("%w: there is no such ticket", admin.ErrUnknown)
	case errors.Is(err, gateway.ErrUnknownPool):
		return fmt.Errorf("%w: there is no such pool", admin.ErrUnknown)
	case errors.Is(err, admission.QueueFull):
		return fmt.Errorf("%w: the line is full here", admin.ErrTooMany)
	case errors.Is(err, admission.ClientLimit):
		return fmt.Errorf("%w: too many of this client's requests wait already", admin.ErrTooMany)
	case errors.Is(err, admission.Draining):
		return fmt.Errorf("%w: this gateway is being taken out", admin.ErrUnavailable)
	case errors.Is(err, admission.Isolated):
		return fmt.Errorf("%w: this gateway has no lease, or is not in the cluster yet", admin.ErrUnavailable)
	case errors.Is(err, gateway.ErrElsewhere):
		return fmt.Errorf("%w: the gateway that has the ticket does not answer; its heir soon will", admin.ErrUnavailable)
	default:
		return err
	}
}

// redeemer lets the proxy's requests take and use tickets.
type redeemer struct{ n *node }

// Request implements proxy.Tickets.
func (r redeemer) Request(ctx context.Context, req admission.Request, ttl time.Duration) (proxy.Ticket, error) {
	t, err := r.n.gateway.RequestTicket(ctx, req, ttl, "Prefer: kgate-ticket")
	if err != nil {
		return proxy.Ticket{}, admitError(err)
	}
	return proxyTicket(t)
}

// Await implements proxy.Tickets.
func (r redeemer) Await(ctx context.Context, id string, wait time.Duration) (proxy.Ticket, error) {
	t, err := r.n.gateway.TestTicket(ctx, id, false, wait)
	if err != nil {
		return proxy.Ticket{}, err
	}
	return proxyTicket(t)
}

// Cancel implements proxy.Tickets.
func (r redeemer) Cancel(id string) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(r.n.ctx, patience)
	defer cancel()
	_ = r.n.gateway.EndTicket(ctx, id) // else it expires
}

func proxyTicket(t gateway.Ticket) (proxy.Ticket, error) {
	body, err := json.Marshal(shownTicket(t))
	return proxy.Ticket{ID: t.ID, Granted: t.Granted, RetryAfter: t.ETA, Body: body}, err
}

// Redeem implements proxy.Tickets.
func (r redeemer) Redeem(ctx context.Context, pool, id string) (proxy.Slot, error) {
	slot, err := r.n.gateway.RedeemTicket(ctx, pool, id)
	var ended *gateway.EndedError
	switch {
	case err == nil:
		return slot, nil
	case errors.As(err, &ended), errors.Is(err, gateway.ErrUnknownTicket):
		return nil, fmt.Errorf("%w: %w", proxy.ErrTicketUnknown, err)
	case errors.Is(err, gateway.ErrTicketWaiting):
		return nil, fmt.Errorf("%w: %w", proxy.ErrTicketWaiting, err)
	case errors.Is(err, gateway.ErrTicketUsed):
		return nil, fmt.Errorf("%w: %w", proxy.ErrTicketInUse, err)
	case errors.Is(err, gateway.ErrElsewhere):
		return nil, &admission.Refusal{Reason: admission.Isolated}
	default:
		return nil, admitError(err)
	}
}
