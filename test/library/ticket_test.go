package library

import (
	"context"
	"errors"
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
	if err != nil || !first.Granted || first.Fence == "" || first.Pool != "p" || first.Left > ttl || first.Left < ttl/2 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := nodes[1].RequestTicket(t.Context(), "p", ttl)
	if err != nil || second.Granted {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := nodes[0].Redeem(t.Context(), "p", second.ID); !errors.Is(err, kgate.ErrTicketWaiting) {
		t.Errorf("redeemed in line: %v", err)
	}
	if _, err := nodes[1].Redeem(t.Context(), "q", first.ID); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("redeemed in another pool: %v", err)
	}
	slot, err := nodes[1].Redeem(t.Context(), "p", first.ID)
	if err != nil || !slot.Valid() || slot.Fence() != first.Fence {
		t.Fatal(err)
	}
	if _, err := nodes[0].Redeem(t.Context(), "p", first.ID); !errors.Is(err, kgate.ErrTicketUsed) {
		t.Errorf("redeemed twice: %v", err)
	}
	if still, err := nodes[0].AwaitTicket(t.Context(), second.ID, 50*time.Millisecond); err != nil || still.Granted {
		t.Errorf("two at once: %+v, %v", still, err)
	}
	slot.Release()
	granted, err := nodes[0].AwaitTicket(t.Context(), second.ID, patience)
	if err != nil || !granted.Granted {
		t.Fatalf("%+v, %v", granted, err)
	}
	if _, err := nodes[0].RenewTicket(t.Context(), second.ID); err != nil {
		t.Error(err)
	}
	if err := nodes[0].EndTicket(t.Context(), second.ID); err != nil {
		t.Error(err)
	}
	if _, err := nodes[1].RenewTicket(t.Context(), second.ID); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("after its end: %v", err)
	}
	acquire(t, nodes[0]).Release()
}

// TestTicketRefusals say what is wrong.
func TestTicketRefusals(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	for _, ttl := range []time.Duration{0, time.Millisecond, 61 * time.Second, time.Hour} {
		if _, err := n.RequestTicket(t.Context(), "p", ttl); err == nil {
			t.Errorf("a ticket that lives for %v", ttl)
		}
	}
	var refused *kgate.Refused
	if _, err := n.RequestTicket(t.Context(), "nosuch", time.Minute); !errors.Is(err, kgate.ErrUnknownPool) || !errors.As(err, &refused) || refused.Pool != "nosuch" {
		t.Errorf("no such pool: %v", err)
	}
	if _, err := n.AwaitTicket(t.Context(), "nosuch", 0); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("no such ticket: %v", err)
	}
}

// TestLoopKeepsTicket: a program that writes what AwaitTicket returns over its ticket, as
// ExampleNode_RequestTicket does, still has the ticket's ID after an error. It asks on, or ends the
// ticket, and no slot is taken by a ticket that nobody knows.
func TestLoopKeepsTicket(t *testing.T) {
	nodes := cluster(t, 2, 1)
	holds := acquire(t, nodes[0])
	ticket, err := nodes[0].RequestTicket(t.Context(), "p", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	id, errs := ticket.ID, 0
	for !ticket.Granted {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		ticket, err = nodes[1].AwaitTicket(ctx, ticket.ID, patience)
		cancel()
		if ticket.ID != id {
			t.Fatalf("after %v the ticket is %+v", err, ticket)
		}
		if err != nil {
			errs++
		}
		if errs == 3 {
			holds.Release()
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if ticket, err = nodes[1].RenewTicket(gone, ticket.ID); err == nil || ticket.ID != id {
		t.Errorf("after %v the ticket is %+v", err, ticket)
	}
	if err := nodes[1].EndTicket(t.Context(), ticket.ID); err != nil {
		t.Error(err)
	}
	acquire(t, nodes[0]).Release()
	if ticket, err = nodes[1].AwaitTicket(t.Context(), ticket.ID, 0); !errors.Is(err, kgate.ErrTicketEnded) || ticket.ID != id {
		t.Errorf("after %v the ticket is %+v", err, ticket)
	}
}
