package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// State of a ticket.
type State string

// The states of a ticket.
const (
	Waiting = State(admission.TicketWaiting) // in line
	Granted = State(admission.TicketGranted) // holds a slot
)

// Status is where a ticket stands.
type Status struct {
	ID    string
	State State
	// Position counts the tickets before this one, and itself; 0: not known.
	Position int
	// ETA estimates the wait that is left; 0: not known.
	ETA time.Duration
	// Fence of a granted ticket, see [Slot.Fence].
	Fence string
	// Upstream of a granted ticket, see [Slot.Upstream].
	Upstream string
	// Left is how long the ticket lives without a further sign: its TTL, or less where
	// the pool bounds how long a slot may be held.
	Left time.Duration
}

// Ticket is a place in the line of a pool. Nothing goes on in the background:
// unless Test or Wait is called at least once per TTL, it ends. It is safe for
// concurrent use.
type Ticket struct {
	c        *Client
	pool, id string

	mu     sync.Mutex // guards what follows
	status Status
	// signed is when the last request was sent that the gateway has surely taken
	// for a sign of the holder: one that did not find the ticket granted.
	signed time.Time
}

// ID is the ticket's secret name: who has it, holds it.
func (t *Ticket) ID() string { return t.id }

// Status returns what was last heard of the ticket.
func (t *Ticket) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Test asks where the ticket stands, which also keeps it in line. With an error it returns
// what was last heard.
func (t *Ticket) Test(ctx context.Context) (Status, error) { return t.test(ctx, 0) }

func (t *Ticket) test(ctx context.Context, wait time.Duration) (Status, error) {
	// A gateway that is silent must leave time for another one.
	q := call{method: http.MethodGet, path: t.path(), within: wait + min(answerIn, t.c.cfg.TTL/3)}
	if wait > 0 {
		q.query = url.Values{"wait": {wait.String()}}.Encode()
	}
	s, sent, err := t.c.ticket(ctx, q)
	if err != nil {
		return t.Status(), err
	}
	s.ID = t.id
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = s
	if s.State == Waiting {
		t.signed = sent
	}
	return s, nil
}

func (t *Ticket) path() string { return pathOf(t.ID()) }

// Wait waits until the ticket is granted and returns its slot. When ctx ends
// the ticket still is in line, until its TTL is over or it is cancelled. While
// no gateway can tell, Wait tries again; after a whole TTL it gives up. Wait
// must not be called again once it has returned a slot.
func (t *Ticket) Wait(ctx context.Context) (*Slot, error) {
	for {
		status := t.Status()
		t.c.cfg.OnStatus(status)
		if status.State == Granted {
			return t.hold(ctx)
		}
		// Short enough that the last sign is a recent one when the slot comes.
		_, err := t.test(ctx, min(t.c.cfg.TTL/3, maxPoll))
		if err == nil {
			continue
		}
		if ctx.Err() != nil || !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
		t.mu.Lock()
		silent := time.Since(t.signed)
		t.mu.Unlock()
		if silent > t.c.cfg.TTL {
			return nil, err
		}
		if !pause(ctx, t.c.retry()) {
			return nil, context.Cause(ctx)
		}
	}
}

// hold makes a slot of a granted ticket.
func (t *Ticket) hold(ctx context.Context) (*Slot, error) {
	t.mu.Lock()
	s := newSlot(t.c, t.pool, t.status, t.signed)
	t.mu.Unlock()
	if time.Since(s.confirmed) > s.term()/2 {
		// Too little is left to begin with. Nobody relies on the slot yet, so it
		// need not be in time.
		if err := s.renew(ctx, time.Now().Add(s.ttl)); err != nil {
			return nil, err
		}
	}
	s.start()
	return s, nil
}

// Cancel leaves the line, or gives the slot back that the ticket was granted.
func (t *Ticket) Cancel() error { return t.c.end(t.path()) }

// acquire waits until ctx ends, then leaves the line.
func (t *Ticket) acquire(ctx context.Context) (*Slot, error) {
	s, err := t.Wait(ctx)
	if err != nil && !errors.Is(err, ErrGone) {
		// Where nobody answers, it ends by itself.
		if e := t.Cancel(); e != nil {
			t.c.cfg.Logger.Warn("ticket cannot be cancelled", slog.String("pool", t.pool), slog.Any("error", e))
		}
	}
	return s, err
}
