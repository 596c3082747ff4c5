package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/internal/problems"
)

func acquire(t *testing.T, c *Client) *Slot {
	t.Helper()
	s, err := c.Acquire(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(t *testing.T, c *Client) *Ticket {
	t.Helper()
	ticket, err := c.RequestTicket(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func release(t *testing.T, s *Slot) {
	t.Helper()
	if err := s.Release(); err != nil {
		t.Error(err)
	}
}

func isLost(s *Slot) bool {
	select {
	case <-s.Lost():
		return true
	default:
		return false
	}
}

func TestAcquireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 2)
		c := n.client(nil)
		var in, most atomic.Int32
		done := make(chan struct{})
		for range 10 {
			go func() {
				s := acquire(t, c)
				most.Store(max(most.Load(), in.Add(1)))
				time.Sleep(time.Minute)
				in.Add(-1)
				release(t, s)
				done <- struct{}{}
			}()
		}
		start := time.Now()
		for range 10 {
			<-done
		}
		// Nobody waits longer than the line takes: 10 holds of a minute, 2 at once.
		if took := time.Since(start); most.Load() != 2 || took != 5*time.Minute {
			t.Errorf("at most %d at once, %v", most.Load(), took)
		}
		n.want(0, 0)
	})
}

func TestSlotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		if s.Fence() != "p/1/1" || s.Pool() != "p" {
			t.Errorf("fence %q, pool %q", s.Fence(), s.Pool())
		}
		time.Sleep(10*time.Minute + time.Second)
		n.want(1, 0)
		if renewals := n.count("PUT"); isLost(s) || renewals != 60 {
			t.Errorf("lost %v, %d renewals in 10 minutes, want one per 10 s", isLost(s), renewals)
		}
		release(t, s)
		release(t, s)
		n.want(0, 0)
		if deletes := n.count("DELETE"); isLost(s) || deletes != 1 {
			t.Errorf("lost %v, %d times deleted", isLost(s), deletes)
		}
	})
}

func TestSlotIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(*network, *Slot)
		within time.Duration // of the break
		reason string
	}{
		"gateways down":          {func(n *network, _ *Slot) { n.set("a", "down"); n.set("b", "down") }, 25500 * time.Millisecond, ""},
		"gateways silent":        {func(n *network, _ *Slot) { n.set("a", "silent"); n.set("b", "silent") }, 25500 * time.Millisecond, ""},
		"answers do not come":    {func(n *network, _ *Slot) { n.set("a", "mute"); n.set("b", "mute") }, 25500 * time.Millisecond, ""},
		"gateways without lease": {func(n *network, _ *Slot) { n.memory.Fail(admission.ErrElsewhere) }, 25500 * time.Millisecond, ""},
		"taken away":             {func(n *network, s *Slot) { n.memory.Drop(s.ID(), admission.EndLost) }, 10 * time.Second, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 1)
				s := acquire(t, n.client(nil))
				start := time.Now()
				tc.breaks(n, s)
				<-s.Lost()
				if took := time.Since(start); took != tc.within {
					t.Errorf("told after %v, want %v", took, tc.within)
				}
				n.set("a", "")
				n.memory.Fail(nil)
				release(t, s)
				n.want(0, 0)
			})
		})
	}
}

// The time to live counts from sending a renewal, not from its answer.
func TestLeaseCountsFromSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(func(cfg *Config) { cfg.Admins = cfg.Admins[:1] })
		slow := &delayed{network: n}
		c.cfg.HTTPClient.Transport = slow
		s := acquire(t, c)
		slow.back.Store(int64(4 * time.Second)) // less than the 5 s that a renewal may take
		time.Sleep(11 * time.Second)            // one is under way
		start := time.Now().Add(-time.Second)   // since when
		time.Sleep(4 * time.Second)
		n.set("a", "down")
		<-s.Lost()
		if took := time.Since(start); took != 25500*time.Millisecond {
			t.Errorf("believed in for %v after sending, want 25.5 s", took)
		}
		n.set("a", "")
		slow.back.Store(0)
		release(t, s)
	})
}

func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		for i, host := range []string{"a", "b", "a"} {
			n.set(host, []string{"down", "silent", "mute"}[i])
			time.Sleep(time.Minute)
			if isLost(s) {
				t.Fatalf("lost when %s was lost", host)
			}
			n.set(host, "")
		}
		n.set("a", "down")
		time.Sleep(time.Minute)
		before := n.count("PUT a")
		time.Sleep(time.Minute)
		if asked := n.count("PUT a") - before; asked != 0 {
			t.Errorf("a gateway that is down was asked first %d times", asked)
		}
		release(t, s)
		n.want(0, 0)
	})
}

// A waiting ticket stays in line while no gateway answers for less than its TTL,
// and gives up after.
func TestWaitThroughOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		first := acquire(t, c)
		got := make(chan *Slot)
		go func() { got <- acquire(t, c) }()
		time.Sleep(time.Minute + time.Second) // a renewal was just answered
		n.set("a", "down")
		n.set("b", "down")
		time.Sleep(15 * time.Second)
		n.set("b", "")
		time.Sleep(15 * time.Second)
		n.want(1, 1)
		release(t, first)
		release(t, <-got)
		n.want(0, 0)

		hold := acquire(t, c)
		failed := make(chan error)
		go func() { _, err := c.Acquire(t.Context(), "p"); failed <- err }()
		time.Sleep(time.Minute)
		n.set("a", "down")
		n.set("b", "down")
		start := time.Now()
		if err := <-failed; !errors.Is(err, ErrUnreachable) || time.Since(start) > 35*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		<-hold.Lost()
		if hold.Release() == nil {
			t.Error("released without a gateway")
		}
	})
}

func TestAcquireEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		n.want(1, 0)
		start := time.Now()
		if _, err := c.TryAcquire(t.Context(), "p"); !errors.Is(err, ErrBusy) || time.Since(start) != tryFor {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		n.want(1, 0)
		release(t, s)
		s, err := c.TryAcquire(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		release(t, s)
	})
}

func TestAcquireAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		n.memory.Fail(admission.ErrElsewhere)
		time.AfterFunc(10*time.Second, func() { n.memory.Fail(nil) })
		s := acquire(t, c)
		ticket := request(t, c)
		got := make(chan *Slot)
		go func() { got <- acquire(t, c) }()
		synctest.Wait()
		n.want(1, 2)
		for range 3 { // Acquire's place is lost; it takes a new one
			_ = ticket.Cancel(t.Context())
			n.dropWaiting()
			time.Sleep(3 * time.Second)
		}
		n.want(1, 1)
		release(t, s)
		release(t, <-got)
	})
}

// A ticket that expires while the gateways cannot serve it is followed by another.
func TestAcquireOutlastsUnavailability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		first := acquire(t, c)
		got := make(chan *Slot)
		go func() { got <- acquire(t, c) }()
		time.Sleep(time.Second)
		release(t, first)
		first = <-got
		go func() { got <- acquire(t, c) }()
		time.Sleep(time.Second)
		n.memory.Fail(admission.ErrElsewhere)
		time.Sleep(2 * time.Minute)
		n.memory.Fail(nil)
		_ = first.Release() // it is lost
		release(t, <-got)
		n.want(0, 0)
	})
}

// A gateway that forgets each ticket at once is not asked without a pause.
func TestAcquirePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		c := newNetwork(t, 1).client(func(cfg *Config) {
			cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if requests++; requests > 1000 {
					return nil, http.ErrServerClosed
				}
				if r.Method == http.MethodPost {
					return answer(r, http.StatusCreated, `{"id": "a", "state": "waiting"}`), nil
				}
				return answer(r, http.StatusGone, `{"type": "`+problems.TypeBase+`gone", "reason": "lost"}`), nil
			})}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Millisecond) // in a pause
		defer cancel()
		if _, err := c.Acquire(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrTicketEnded) {
			t.Error(err)
		}
		if requests > 130 { // two each second
			t.Errorf("%d requests in a minute", requests)
		}
	})
}

// roundTrip answers in memory.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body))}
}

// A ticket may be used by several goroutines: this is for the race detector.
func TestTicketIsSafe(t *testing.T) {
	n := newNetwork(t, 1)
	ticket := request(t, n.client(nil))
	id := ticket.ID()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := ticket.Renew(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for range 100 {
		if ticket.State(); ticket.ID() != id {
			t.Error("the ticket's name changes")
		}
	}
	<-done
	if err := ticket.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
}

// idle counts how often its idle connections are closed.
type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestCloseLeavesOthersConnections(t *testing.T) {
	callers := new(idle)
	c, err := New(Config{HTTPClient: &http.Client{Transport: callers}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if callers.closed != 0 {
		t.Error("the idle connections of the caller's HTTPClient were closed")
	}
	own := new(idle)
	if c, err = New(Config{}); err != nil {
		t.Fatal(err)
	}
	c.cfg.HTTPClient = &http.Client{Transport: own}
	if c.Close(); own.closed != 1 {
		t.Error("the client's own idle connections stay")
	}
}

func TestCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		ticket := request(t, c)
		for range 5 {
			state, err := ticket.Renew(t.Context())
			if err != nil || state.Granted || state.Place != 1 || state.Expected != time.Second || state.Pool != "p" {
				t.Errorf("%+v, %v", state, err)
			}
			time.Sleep(29 * time.Second)
		}
		if _, err := ticket.Redeem(t.Context()); !errors.Is(err, ErrTicketWaiting) {
			t.Errorf("redeemed in line: %v", err)
		}
		release(t, s)
		if err := ticket.Wait(t.Context()); err != nil || ticket.State().Fence != "p/1/2" {
			t.Errorf("%+v, %v", ticket.State(), err)
		}
		time.Sleep(20 * time.Second)
		renewals := n.count("PUT")
		slot, err := ticket.Redeem(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.count("PUT") == renewals { // the last sign was long ago
			t.Error("a slot with next to no time left was not renewed at once")
		}
		if _, err := ticket.Redeem(t.Context()); !errors.Is(err, ErrTicketUsed) {
			t.Errorf("redeemed twice: %v", err)
		}
		if err := ticket.Cancel(t.Context()); !errors.Is(err, ErrTicketUsed) {
			t.Errorf("cancelled while the slot is in use: %v", err)
		}
		release(t, slot)
		if state, err := ticket.Renew(t.Context()); !errors.Is(err, ErrTicketEnded) || state.Fence != "p/1/2" {
			t.Errorf("after release: %+v, %v", state, err)
		}
		forgotten := request(t, c)
		time.Sleep(31 * time.Second)
		if err := forgotten.Wait(t.Context()); !errors.Is(err, ErrTicketEnded) || !strings.HasSuffix(err.Error(), ": expired") {
			t.Errorf("not polled: %v", err)
		}
		if err := forgotten.Cancel(t.Context()); err != nil {
			t.Errorf("cancelled after its end: %v", err)
		}
		n.want(0, 0)
	})
}

// Zero values say what they are, and do not panic.
func TestZeroValues(t *testing.T) {
	var none *Client
	for _, c := range []*Client{none, new(Client)} {
		_, acquire := c.Acquire(t.Context(), "p")
		_, request := c.RequestTicket(t.Context(), "p")
		_, renew := c.Ticket("an-id").Renew(t.Context())
		for _, err := range []error{acquire, request, renew, c.Ticket("an-id").Wait(t.Context()), c.Ticket("an-id").Cancel(t.Context())} {
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "that New returns") {
				t.Error(err)
			}
		}
		c.Close()
	}
	var ticket *Ticket
	for _, tk := range []*Ticket{ticket, new(Ticket), newNetwork(t, 1).client(nil).Ticket("")} {
		_, redeem := tk.Redeem(t.Context())
		for _, err := range []error{redeem, tk.Wait(t.Context()), tk.Cancel(t.Context())} {
			if !errors.Is(err, errNoTicket) || tk.State() != (TicketState{}) || tk.ID() != "" {
				t.Error(err)
			}
		}
	}
	//lint:ignore SA1012 what a caller may have forgotten
	if _, err := newNetwork(t, 1).client(nil).Acquire(nil, "p"); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	var slot *Slot
	for _, s := range []*Slot{slot, new(Slot)} {
		if <-s.Lost(); s.Release() != nil || s.ID()+s.Pool()+s.Fence()+s.Upstream() != "" || s.Grace() != 0 {
			t.Error("a slot that was never given is held")
		}
	}
}

// A ticket is known by its ID alone, and what fails keeps it.
func TestTicketByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		ticket := c.Ticket(request(t, c).ID())
		n.set("a", "down")
		n.set("b", "silent")
		if _, err := ticket.Renew(t.Context()); !errors.Is(err, ErrUnreachable) {
			t.Errorf("no gateway answers: %v", err)
		}
		if err := ticket.Cancel(t.Context()); !errors.Is(err, ErrUnreachable) {
			t.Errorf("cancelled without a gateway: %v", err)
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ticket.Wait(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ends with %v", err)
		}
		n.set("b", "")
		release(t, s)
		slot, err := c.Ticket(ticket.ID()).Redeem(t.Context())
		if err != nil || slot.Fence() != "p/1/2" || slot.Pool() != "p" || slot.ID() != ticket.ID() {
			t.Fatalf("%+v, %v", slot, err)
		}
		time.Sleep(time.Minute) // it is renewed
		release(t, slot)
		n.want(0, 0)
	})
}

// An answer that does not come leaves nothing behind for longer than the TTL.
func TestLostAnswerLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		n.set("a", "mute")
		c := n.client(func(cfg *Config) { cfg.TTL = 5 * time.Second })
		start := time.Now()
		s := acquire(t, c) // b's ticket stands behind the one that a did not tell of
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the slot was free after %v", took)
		}
		release(t, s)
		n.want(0, 0)
	})
}

// A gateway that says nothing does not keep a slot from being given back at another one.
func TestReleasePastSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		s := acquire(t, c)
		n.set(c.bases[c.good.Load()].Host, "silent")
		release(t, s)
		n.want(0, 0)
	})
}

// Who gives up while the answer is on its way does not stay in line.
func TestCancelledWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		held := acquire(t, n.client(nil))
		c := n.client(nil)
		slow := &delayed{network: n}
		slow.back.Store(int64(100 * time.Millisecond))
		c.cfg.HTTPClient.Transport = slow
		soon := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		if _, err := c.Acquire(soon(), "p"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answered %v", err)
		}
		n.want(1, 0)
		ticket, err := c.RequestTicket(soon(), "p") // whose caller has the ID, and decides
		if err != nil {
			t.Fatal(err)
		}
		if err := ticket.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		n.want(1, 0)
		release(t, held)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		c := n.client(nil)
		if _, err := c.Acquire(t.Context(), "nosuch"); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		n.memory.Fail(admission.QueueFull)
		if _, err := c.Acquire(t.Context(), "p"); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		n.memory.Fail(errors.New("broken"))
		if _, err := c.TryAcquire(t.Context(), "p"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		n.set("a", "down")
		n.set("b", "down")
		if _, err := c.Acquire(t.Context(), "p"); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	})
	for name, cfg := range map[string]Config{
		"address":              {Admins: []string{"localhost:9080"}},
		"ttl":                  {TTL: 365 * 24 * time.Hour},
		"short ttl":            {TTL: time.Millisecond},
		"note":                 {Note: string(make([]byte, 257))},
		"token":                {Token: "a\r\nb"},
		"timeout":              {TTL: time.Minute, HTTPClient: &http.Client{Timeout: 59 * time.Second}},
		"timeout, default TTL": {HTTPClient: &http.Client{Timeout: 29 * time.Second}},
	} {
		if _, err := New(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slowLog is a log that takes long for each line.
type slowLog struct{ takes time.Duration }

// Write implements io.Writer.
func (l slowLog) Write(p []byte) (int, error) {
	time.Sleep(l.takes)
	return len(p), nil
}

// The grace ends with the slot's own time, however late its holder learns of the loss.
func TestGraceOfALateHolder(t *testing.T) {
	const ttl = 30 * time.Second
	for _, late := range []time.Duration{0, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, 1)
			c := n.client(func(cfg *Config) {
				cfg.TTL, cfg.Logger = ttl, slog.New(slog.NewTextHandler(slowLog{late}, nil))
			})
			s := acquire(t, c)
			if got := s.Grace(); got != ttl/20 {
				t.Errorf("before the loss, the grace is %v", got)
			}
			begun := time.Now()
			n.set("a", "down")
			n.set("b", "down")
			<-s.Lost()
			if got, want := s.Grace(), max(0, drift.Use(ttl)-time.Since(begun)); got != want {
				t.Errorf("%v late, the grace is %v, want %v", late, got, want)
			}
			time.Sleep(s.Grace() / 2)
			if got, want := s.Grace(), max(0, drift.Use(ttl)-time.Since(begun)); got != want {
				t.Errorf("%v late, after half of it, the grace is %v, want %v", late, got, want)
			}
			_ = s.Release() // no gateway answers
		})
	}
}

// A holder that learns of the loss late, as one that was stopped, has less grace.
func TestGraceOfALateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		n := newNetwork(t, 1)
		c := n.client(func(cfg *Config) {
			cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPut {
					time.Sleep(drift.Use(ttl) - ttl/3 - time.Second/2)
					return nil, http.ErrServerClosed
				}
				return n.RoundTrip(r)
			})}
		})
		s := acquire(t, c)
		<-s.Lost()
		if got := s.Grace(); got != time.Second/2 {
			t.Errorf("the grace is %v, want 500ms", got)
		}
		_ = s.Release()
	})
}
