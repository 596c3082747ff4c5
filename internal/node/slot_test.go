package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pace"
)

// TestOutcomes: only a request whose context has ended left before it was admitted.
func TestOutcomes(t *testing.T) {
	n := start(t, alone(t))
	unknown := n.RedeemInto(t.Context(), new(Slot), "p", "x", nil)
	pool := n.AcquireInto(t.Context(), new(Slot), &admission.Request{Pool: "q"})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want admission.Outcome
	}{
		{t.Context(), unknown, admission.OutcomeNone},
		{t.Context(), pool, admission.OutcomeNone},
		{t.Context(), admission.ErrTicketUsed, admission.OutcomeNone},
		{t.Context(), admission.ErrTicketWaiting, admission.OutcomeNone},
		{t.Context(), admission.ErrElsewhere, admission.Isolated.Outcome()},
		{t.Context(), &admission.Refusal{Reason: admission.QueueFull}, admission.QueueFull.Outcome()},
		{gone, errors.New("the caller's cause"), admission.OutcomeClientGone},
	} {
		if got := outcomeOf(c.ctx, c.err); c.err == nil || got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestTicketCallsAtTheEnd: a gateway that ends sends clients elsewhere that wait for their
// tickets. An answer that says nothing would mean that a ticket has ended.
func TestTicketCallsAtTheEnd(t *testing.T) {
	cfg := alone(t)
	cfg.Pools[0].Tickets = true
	n := start(t, cfg)
	clients := httptest.NewServer(n.proxy)
	defer clients.Close()
	tickets := make([]admission.Ticket, 2) // the second waits
	for i := range tickets {
		var err error
		if tickets[i], err = n.Tickets().RequestTicket(t.Context(), admission.Request{Pool: "p"}, time.Minute, ""); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(method, query string, want int) {
		req, err := http.NewRequestWithContext(t.Context(), method, clients.URL+"/.kgate/tickets/"+tickets[1].ID+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := clients.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if elsewhere := res.Header.Get("Retry-After") != "" && bytes.Contains(body, []byte("shutting down")); err != nil || res.StatusCode != want || elsewhere != (want == 503) {
			t.Errorf("%s%s: %s %s %v, want %d", method, query, res.Status, body, err, want)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { n.stopServing(errEnds) })
	ask("GET", "?wait=20s", 503) // waits when the end begins
	ask("GET", "?wait=20s", 503)
	ask("GET", "", 200)
	ask("DELETE", "", 204)
}

// TestTicketsRequestIsPaced: a request on a ticket's slot is no faster than its pool's rate.
func TestTicketsRequestIsPaced(t *testing.T) {
	const perSecond, size = 1 << 20, 512 << 10
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer upstream.Close()
	cfg := alone(t)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pools[0].Upstreams, cfg.Pools[0].Rate.Down, cfg.Pools[0].Tickets = []*url.URL{at}, perSecond, true
	n := start(t, cfg)
	clients := httptest.NewServer(n.proxy)
	defer clients.Close()
	ticket, err := n.Tickets().RequestTicket(t.Context(), admission.Request{Pool: "p"}, time.Minute, "")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, clients.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Kgate-Ticket", ticket.ID)
	began := time.Now()
	res, err := clients.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.Copy(io.Discard, res.Body)
	if err != nil || got != size {
		t.Fatalf("%d bytes, %v", got, err)
	}
	least := time.Duration(float64(size-pace.Burst(perSecond, 1)) / perSecond * float64(time.Second))
	if took := time.Since(began); took < least {
		t.Errorf("%d bytes took %v, at least %v", size, took, least)
	}
}
