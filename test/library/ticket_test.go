package library

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate"
)

// TestTickets: a place that was taken at one node is granted, redeemed and ended at
// another.
func TestTickets(t *testing.T) {
	nodes := cluster(t, 2, 1)
	const ttl = time.Minute
	first, err := nodes[0].RequestTicket(t.Context(), "p", ttl, kgate.Note("first"))
	if err != nil {
		t.Fatal(err)
	}
	state := first.State()
	if !state.Granted || state.Fence == "" || state.Pool != "p" || state.Left > ttl || state.Left < ttl/2 {
		t.Fatalf("%+v", state)
	}
	second, err := nodes[1].RequestTicket(t.Context(), "p", ttl)
	if err != nil || second.State().Granted {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := nodes[0].Ticket(second.ID()).Redeem(t.Context()); !errors.Is(err, kgate.ErrTicketWaiting) {
		t.Errorf("redeemed in line: %v", err)
	}
	slot, err := nodes[1].Ticket(first.ID()).Redeem(t.Context())
	if err != nil || !slot.Valid() || slot.Fence() != state.Fence {
		t.Fatal(err)
	}
	if _, err := first.Redeem(t.Context()); !errors.Is(err, kgate.ErrTicketUsed) {
		t.Errorf("redeemed twice: %v", err)
	}
	elsewhere := nodes[0].Ticket(second.ID())
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := elsewhere.Wait(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two at once: %v", err)
	}
	slot.Release()
	if err := elsewhere.Wait(t.Context()); err != nil || !elsewhere.State().Granted {
		t.Fatalf("%+v, %v", elsewhere.State(), err)
	}
	if state, err := second.Renew(t.Context()); err != nil || !state.Granted {
		t.Error(err)
	}
	if err := elsewhere.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := second.Renew(t.Context()); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("after its end: %v", err)
	}
	acquire(t, nodes[0]).Release()
}

// TestTicketRefusals say what is wrong.
func TestTicketRefusals(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	for _, ttl := range []time.Duration{0, time.Millisecond, 61 * time.Second, time.Hour} {
		if _, err := n.RequestTicket(t.Context(), "p", ttl); err == nil || strings.Contains(err.Error(), "_") {
			t.Errorf("a ticket that lives for %v: %v", ttl, err)
		}
	}
	var refused *kgate.RefusedError
	if _, err := n.RequestTicket(t.Context(), "nosuch", time.Minute); !errors.Is(err, kgate.ErrUnknownPool) || !errors.As(err, &refused) || refused.Pool != "nosuch" {
		t.Errorf("no such pool: %v", err)
	}
	if err := n.Ticket("nosuch").Wait(t.Context()); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("no such ticket: %v", err)
	}
}

// TestErrorsKeepTheTicket: calls that fail change nothing in the ticket. It can be asked on, or be
// ended, and no slot is taken by a ticket that nobody knows.
func TestErrorsKeepTheTicket(t *testing.T) {
	nodes := cluster(t, 2, 1)
	holds := acquire(t, nodes[0])
	ticket, err := nodes[0].RequestTicket(t.Context(), "p", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ticket = nodes[1].Ticket(ticket.ID())
	for errs := 0; !ticket.State().Granted; {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := ticket.Wait(ctx)
		cancel()
		if err != nil {
			errs++
		}
		if errs == 3 {
			holds.Release()
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if state, err := ticket.Renew(gone); err == nil || !state.Granted {
		t.Errorf("after %v the ticket is %+v", err, state)
	}
	if err := ticket.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	acquire(t, nodes[0]).Release()
	if err := ticket.Wait(t.Context()); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Error(err)
	}
}
