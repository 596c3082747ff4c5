package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
)

// Slot is one of the k of a pool, held until Release. It is renewed in the
// background. It is safe for concurrent use. The zero Slot, and nil, is a released slot.
type Slot struct {
	c   *Client
	id  string
	is  TicketState
	ttl time.Duration
	// confirmed is when the newest renewal was sent that was answered, and left what
	// the answer promised. The goroutine that renews owns them.
	confirmed time.Time
	left      time.Duration

	lost   chan struct{}
	until  time.Time // when Grace is over; set before lost is closed
	cancel context.CancelFunc
	done   chan struct{} // closed when the renewing has ended
	once   sync.Once
	err    error // of Release
}

func newSlot(c *Client, id string, is TicketState, signed time.Time) *Slot {
	return &Slot{
		c: c, id: id, is: is, ttl: c.cfg.TTL, confirmed: signed, left: is.Left,
		lost: make(chan struct{}), done: make(chan struct{}),
	}
}

// ID is the slot's secret name, which is its ticket's. As the header Kgate-Ticket it lets a
// request through a gateway into the slot.
func (s *Slot) ID() string {
	if s.never() {
		return ""
	}
	return s.id
}

// state is the ticket's state when it was redeemed.
func (s *Slot) state() TicketState {
	if s.never() {
		return TicketState{}
	}
	return s.is
}

// Pool returns the pool's name.
func (s *Slot) Pool() string { return s.state().Pool }

// Fence names this use of a slot: <pool>/<founded>/<epoch>/<serial>. No other has the
// same. In a pool with one slot a later holder has greater numbers, compared one
// after the other, so a resource that checks the fence can refuse a holder that
// does not know yet that it has lost its slot. With more slots the order tells
// nothing: a holder of long standing has smaller numbers than later ones.
func (s *Slot) Fence() string { return s.state().Fence }

// Upstream is the URL of the upstream that the slot is for, at which its request has to be made;
// empty: for any, the pool's upstreams have no k of their own.
func (s *Slot) Upstream() string { return s.state().Upstream }

// Lost is closed when the slot cannot be held any longer: it could not be renewed in
// time, or its pool bounds how long it may be held, and it must be let go within
// [Slot.Grace]; or the gateways have ended it. Release does not close it.
func (s *Slot) Lost() <-chan struct{} {
	if s.never() {
		return closed
	}
	return s.lost
}

// never reports whether the slot was never given.
func (s *Slot) never() bool { return s == nil || s.c == nil }

// closed is the channel of slots that never were.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Release gives the slot back. It takes a few seconds at most; when no gateway
// answers it fails, and the slot is free when its time to live is over. Further
// calls return the same.
func (s *Slot) Release() error {
	if s.never() {
		return nil
	}
	s.once.Do(func() {
		s.cancel()
		<-s.done
		s.err = s.c.end(context.Background(), s.id)
	})
	return s.err
}

// over reports whether the slot is held no longer, or was lost.
func (s *Slot) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Grace is how much longer the slot still is its holder's after [Slot.Lost] was closed,
// unless the gateways have ended it. The holder must have stopped by then. At first it is a
// twentieth of the time to live, and five seconds at most. It is less for a process that
// was stopped or late when the slot was lost, and 0 once the time is over. Before the loss
// it is what it will be at first.
func (s *Slot) Grace() time.Duration {
	select {
	case <-s.Lost():
		if s.never() {
			return 0
		}
		return max(0, time.Until(s.until))
	default:
		return s.grace()
	}
}

func (s *Slot) grace() time.Duration { return min(s.ttl/20, 5*time.Second) }

// term is what the newest renewal promised. Near the end of a hold that the pool bounds
// it is less than the time to live.
func (s *Slot) term() time.Duration { return min(s.ttl, s.left) }

// ends returns when somebody else may have the slot without another renewal.
func (s *Slot) ends() time.Time { return s.confirmed.Add(drift.Use(s.term())) }

// lapses returns when the slot is lost without another renewal.
func (s *Slot) lapses() time.Time { return s.ends().Add(-s.grace()) }

// due returns when to renew next.
func (s *Slot) due() time.Time { return s.confirmed.Add(max(s.term()/3, s.c.retry())) }

// start renews in the background until Release or the loss of the slot.
func (s *Slot) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		defer cancel()
		for pause(ctx, min(time.Until(s.due()), time.Until(s.lapses()))) {
			if err := s.goOn(ctx); err != nil {
				if ctx.Err() == nil {
					// This goroutine may have woken late, and the log may be slow.
					s.until = time.Now().Add(s.grace())
					if ends := s.ends(); ends.Before(s.until) {
						s.until = ends
					}
					s.c.cfg.Logger.Warn("slot lost", slog.String("pool", s.Pool()), slog.Any("error", err))
					close(s.lost)
				}
				return
			}
		}
	}()
}

// goOn renews the slot, unless too little of its hold is left.
func (s *Slot) goOn(ctx context.Context) error {
	if ends := s.lapses(); s.due().Before(ends) {
		return s.renew(ctx, ends)
	}
	return &admission.EndedError{How: admission.EndHoldMax}
}

// renew renews the slot, trying until it would be too late.
func (s *Slot) renew(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, ErrUnreachable)
	defer cancel()
	for {
		// A gateway that is silent must leave time for another one.
		d, sent, err := s.c.ticket(ctx, call{method: http.MethodPut, path: pathOf(s.id), within: s.ttl / 6})
		switch {
		case err == nil:
			s.confirmed, s.left = sent, time.Duration(d.Left)
			return nil
		case errors.Is(err, ErrTicketEnded):
			return err
		case !pause(ctx, s.c.retry()):
			return context.Cause(ctx)
		}
	}
}
