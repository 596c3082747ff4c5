package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// counter is Tickets over a semaphore: the ticket "granted" is good for one slot
// of it, others for what their names say.
type counter struct {
	*semaphore
	asked []string // pool and ttl of each request for a ticket
	err   error

	granted, later bool   // at once, and when it is awaited
	leaves         func() // its client, while it is awaited
	cancelled      chan string
}

func (c *counter) RequestTicket(_ context.Context, req admission.Request, ttl time.Duration, _ string) (admission.Ticket, error) {
	c.asked = append(c.asked, fmt.Sprint(req.Pool, " ", ttl))
	return admission.Ticket{ID: "abc-1", Granted: c.granted, ETA: time.Hour}, c.err
}

func (c *counter) TestTicket(ctx context.Context, id string, _ bool, wait time.Duration) (admission.Ticket, error) {
	c.asked = append(c.asked, fmt.Sprint("await ", wait))
	if c.leaves != nil {
		c.leaves()
		<-ctx.Done()
		return admission.Ticket{}, ctx.Err()
	}
	return admission.Ticket{ID: id, Granted: c.later, Pool: "later"}, nil
}

func (c *counter) EndTicket(_ context.Context, id string) error {
	c.cancelled <- id
	return nil
}

func (c *counter) RedeemTicket(ctx context.Context, pool, id string, holder admission.Holder) (Slot, error) {
	switch {
	case c.err != nil:
		return nil, c.err
	case pool != "p" || id == "unknown":
		return nil, fmt.Errorf("test: %w", admission.ErrUnknownTicket)
	case id == "waiting":
		return nil, fmt.Errorf("test: %w", admission.ErrTicketWaiting)
	case id == "used":
		return nil, fmt.Errorf("test: %w", admission.ErrTicketUsed)
	}
	return c.Acquire(ctx, admission.Request{Pool: pool, Holder: holder})
}

func withTickets(c *Config, tickets Tickets) {
	c.Tickets = tickets
	c.Pools[0].Tickets = true
}

// TestRedeem: a ticket is admission without the line, and says what is wrong
// with it otherwise. It is not shown to the upstream.
func TestRedeem(t *testing.T) {
	up := newGate()
	g := newGateway(t, 2, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }),
		func(c *Config) {
			sem := c.Admitter.(*semaphore)
			withTickets(c, &counter{semaphore: sem})
			c.Admitter = refuser{} // the line lets nobody in
		})
	for _, tt := range []struct {
		ids    []string
		status int
		detail string
	}{
		{nil, 503, "the line of this pool is full"},
		{[]string{"unknown"}, 409, "ask for a new one"},
		{[]string{"waiting"}, 409, "/.kgate/tickets"},
		{[]string{"used"}, 409, "one ticket is good for one request"},
		{[]string{""}, 400, "one ticket"},
		{[]string{"a", "b"}, 400, "one ticket"},
	} {
		req := g.request("GET", "/")
		for _, id := range tt.ids {
			req.Header.Add("Kgate-Ticket", id)
		}
		res := g.do(req)
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var p problem
		if err := json.Unmarshal(body, &p); err != nil || res.StatusCode != tt.status || p.Status != tt.status ||
			!strings.Contains(p.Detail, tt.detail) || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: got %v %s", tt.ids, res.Status, body)
		}
		if rec := g.records.next(t); tt.status != 503 && rec.Outcome != admission.OutcomeNone || rec.Hold != 0 {
			t.Errorf("%q: record %+v", tt.ids, rec)
		}
	}
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nKgate-Ticket: granted\r\n\r\n")
	if r := up.awaitEntered(t); r.Header.Get("Kgate-Ticket") != "" {
		t.Error("the upstream got to see the ticket")
	}
	g.sem.await(1, 0)
	close(up.proceed)
	if res := c.response(); res.StatusCode != 200 {
		t.Errorf("got %v", res.Status)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}

type refuser struct{}

func (refuser) Acquire(context.Context, admission.Request) (Slot, error) {
	return nil, &admission.Refusal{Reason: admission.QueueFull}
}

// TestRedeemRefused: refusals and failures are those of the line.
func TestRedeemRefused(t *testing.T) {
	tickets := &counter{}
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) { withTickets(c, tickets) })
	for err, status := range map[error]int{&admission.Refusal{Reason: admission.Isolated}: 503, admission.Draining: 503, errors.New("secret"): 500} {
		tickets.err = err
		for _, header := range []string{"Kgate-Ticket", "Prefer"} {
			res := g.do(g.request("GET", "/", header, "kgate-ticket"))
			b, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != status || strings.Contains(string(b), "secret") {
				t.Errorf("%s, %v: got %v %s", header, err, res.Status, b)
			}
		}
	}
}

// TestNoTickets: without them the header is refused, rather than ignored, and
// the preference ignored.
func TestNoTickets(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	for header, status := range map[string]int{"Kgate-Ticket": 400, "Prefer": 200} {
		res := g.do(g.request("GET", "/", header, "kgate-ticket"))
		_ = res.Body.Close()
		if res.StatusCode != status || res.Header.Get("Preference-Applied") != "" {
			t.Errorf("%s: got %v %v", header, res.Status, res.Header)
		}
	}
	if _, err := New(Config{Admitter: g.sem, Pools: []Pool{{Name: "p", Upstreams: g.handler.current.Load().cfg.Pools[0].Upstreams, Tickets: true}}}); !errors.Is(err, errConfig) {
		t.Errorf("a pool with tickets and nobody to serve them: %v", err)
	}
}

// TestTicketPreferred: a ticket in place of a wait, of a pool that has them. The wait
// that the client prefers comes first, and a slot that is free is not waited for.
func TestTicketPreferred(t *testing.T) {
	for _, c := range []struct {
		name, path, prefer string
		granted, later     bool
		status             int
		applied, asked     string
	}{
		{"a ticket", "/", "kgate-ticket", false, false, 202, "kgate-ticket", "[p 1m0s]"},
		{"after the wait", "/", "wait=10, Kgate-Ticket; x=y", false, false, 202, "kgate-ticket", "[p 1m0s await 10s]"},
		{"within the wait", "/", "kgate-ticket, wait=10", false, true, 200, "wait=10", "[p 1m0s await 10s]"},
		{"a wait longer than the pool's", "/", "kgate-ticket, wait=100", false, true, 200, "", "[p 1m0s await 1m0s]"},
		{"at once", "/", "kgate-ticket, wait=10", true, false, 200, "", "[p 1m0s]"},
		{"a pool without tickets", "/other/", "kgate-ticket", false, false, 200, "", "[]"},
		{"the upstream's business", "/", "respond-async", false, false, 200, "", "[]"},
		{"within a quoted string", "/", `x="a, kgate-ticket"`, false, false, 200, "", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tickets *counter
			g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(cfg *Config) {
				tickets = &counter{semaphore: cfg.Admitter.(*semaphore), granted: c.granted, later: c.later}
				withTickets(cfg, tickets)
				other := cfg.Pools[0]
				other.Name, other.Tickets = "other", false
				cfg.Pools = append(cfg.Pools, other)
				cfg.Routes = []Route{{Pool: "other", Match: Match{PathPrefix: "/other/"}}, {Pool: "p"}}
			})
			res := g.do(g.request("POST", c.path, "Prefer", c.prefer))
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			h := res.Header
			if res.StatusCode != c.status || h.Get("Preference-Applied") != c.applied || fmt.Sprint(tickets.asked) != c.asked {
				t.Errorf("got %v %v, asked for %v", res.Status, h, tickets.asked)
			}
			if c.status != 202 {
				if h.Get("Seen-Uri") != c.path || h.Get("Got-Prefer") != c.prefer {
					t.Errorf("the upstream saw %v", h)
				}
				return
			}
			if h.Get("Location") != "/.kgate/tickets/abc-1" || h.Get("Content-Type") != "application/json" || len(body) == 0 || h.Get("Server-Timing") != "" {
				t.Errorf("got %v %s", h, body)
			}
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeNone || rec.Pool != "p" || rec.Status != 202 || rec.Upstream != "" {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

// TestTicketPreferredLeaves: a client that leaves before it was told of its ticket
// leaves none behind.
func TestTicketPreferredLeaves(t *testing.T) {
	tickets := &counter{cancelled: make(chan string, 1)}
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(cfg *Config) { withTickets(cfg, tickets) })
	conn := g.dial()
	tickets.leaves = func() { _ = conn.Close() }
	conn.send("GET / HTTP/1.1\r\nHost: h\r\nPrefer: kgate-ticket, wait=10\r\n\r\n")
	select {
	case id := <-tickets.cancelled:
		if id != "abc-1" {
			t.Errorf("ticket %q is cancelled", id)
		}
	case <-time.After(patience):
		t.Error("the ticket is left behind")
	}
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeClientGone {
		t.Errorf("record %+v", rec)
	}
}

// TestTicketHandler: its paths are nobody else's, in any spelling that an
// upstream may take for them, and the log keeps the tickets' secret.
func TestTicketHandler(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, mounted := range []bool{true, false} {
			var log bytes.Buffer
			g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
				c.AccessLog = AccessStructured
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if mounted {
					c.TicketHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Ticket-Path", r.URL.Path)
						w.WriteHeader(http.StatusCreated)
					})
				}
			})
			for path, ours := range map[string]bool{
				"/.kgate/tickets": true, "/.kgate/tickets/": true, "/.kgate/tickets/secret": true, "//.kgate//tickets/secret": true,
				"/%2ekgate/tickets/secret": true, "/.kgate/ticketsx": false, "/x/.kgate/tickets": false,
			} {
				res := g.do(g.request("POST", path))
				_ = res.Body.Close()
				want := map[bool]int{true: 404, false: 200}[ours]
				if mounted && ours {
					want = 201
				}
				if res.StatusCode != want {
					t.Errorf("mounted %v, %s: got %v, want %d", mounted, path, res.Status, want)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := g.server.Shutdown(ctx); err != nil { // the log is whole
				t.Error(err)
			}
			cancel()
			if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "path=/.kgate/tickets ") {
				t.Errorf("log: %s", log.String())
			}
		}
	})
}
