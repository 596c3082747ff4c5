package library

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/client"
	"github.com/kgate/kgate/gateway"
)

// ticket is one of package kgate or of package client: these are the same, but for their types.
type ticket[State, Slot any] interface {
	ID() string
	State() State
	Wait(context.Context) error
	Renew(context.Context) (State, error)
	Redeem(context.Context) (*Slot, error)
	Cancel(context.Context) error
}

// tickets ask for them at one of two nodes.
type tickets[State, Slot any] struct {
	request func(at int) (ticket[State, Slot], error)
	byID    func(at int, id string) ticket[State, Slot]
	state   func(State) kgate.TicketState
	fence   func(*Slot) string
	release func(*Slot)
}

// TestTickets: a place that was taken at one node is granted, redeemed and ended at
// another, also over HTTP.
func TestTickets(t *testing.T) {
	const ttl = time.Minute
	t.Run("kgate", func(t *testing.T) {
		nodes := cluster(t, 2, 1)
		tickets[kgate.TicketState, kgate.Slot]{
			request: func(at int) (ticket[kgate.TicketState, kgate.Slot], error) {
				return nodes[at].RequestTicket(t.Context(), "p", ttl, kgate.Note("a test"))
			},
			byID:    func(at int, id string) ticket[kgate.TicketState, kgate.Slot] { return nodes[at].Ticket(id) },
			state:   func(s kgate.TicketState) kgate.TicketState { return s },
			fence:   (*kgate.Slot).Fence,
			release: (*kgate.Slot).Release,
		}.cycle(t, ttl)
		acquire(t, nodes[0]).Release()
	})
	t.Run("client", func(t *testing.T) {
		nodes, clients := cluster(t, 2, 1), make([]*client.Client, 2)
		for i, n := range nodes {
			admin := httptest.NewServer(gateway.Admin(n))
			defer admin.Close()
			c, err := client.New(client.Config{Admins: []string{admin.URL}, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		tickets[client.TicketState, client.Slot]{
			request: func(at int) (ticket[client.TicketState, client.Slot], error) {
				return clients[at].RequestTicket(t.Context(), "p")
			},
			byID:  func(at int, id string) ticket[client.TicketState, client.Slot] { return clients[at].Ticket(id) },
			state: func(s client.TicketState) kgate.TicketState { return kgate.TicketState(s) },
			fence: (*client.Slot).Fence,
			release: func(s *client.Slot) {
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			},
		}.cycle(t, ttl)
		acquire(t, nodes[0]).Release()
	})
}

func (ts tickets[State, Slot]) cycle(t *testing.T, ttl time.Duration) {
	first, err := ts.request(0)
	if err != nil {
		t.Fatal(err)
	}
	state := ts.state(first.State())
	if !state.Granted || state.Fence == "" || state.Pool != "p" || state.Left > ttl || state.Left < ttl/2 {
		t.Fatalf("%+v", state)
	}
	second, err := ts.request(1)
	if err != nil || ts.state(second.State()).Granted {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := ts.byID(0, second.ID()).Redeem(t.Context()); !errors.Is(err, kgate.ErrTicketWaiting) {
		t.Errorf("redeemed in line: %v", err)
	}
	redeemed := ts.byID(1, first.ID())
	slot, err := redeemed.Redeem(t.Context())
	if err != nil || ts.fence(slot) != state.Fence {
		t.Fatal(err)
	}
	if _, err := redeemed.Redeem(t.Context()); !errors.Is(err, kgate.ErrTicketUsed) {
		t.Errorf("redeemed twice: %v", err)
	}
	if err := redeemed.Cancel(t.Context()); !errors.Is(err, kgate.ErrTicketUsed) {
		t.Errorf("cancelled while its slot is in use: %v", err)
	}
	elsewhere := ts.byID(0, second.ID())
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := elsewhere.Wait(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two at once: %v", err)
	}
	ts.release(slot)
	if err := elsewhere.Wait(t.Context()); err != nil || !ts.state(elsewhere.State()).Granted {
		t.Fatalf("%+v, %v", elsewhere.State(), err)
	}
	if state, err := second.Renew(t.Context()); err != nil || !ts.state(state).Granted {
		t.Error(err)
	}
	for range 2 {
		if err := elsewhere.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := second.Renew(t.Context()); !errors.Is(err, kgate.ErrTicketEnded) {
		t.Errorf("after its end: %v", err)
	}
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
