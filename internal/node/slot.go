package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
)

// Slot of a pool that was acquired by the program itself, counted as a request is.
type Slot struct {
	proxy.Slot
	observer requestObserver
	rec      proxy.Record
	granted  time.Time
	released sync.Once
}

// Acquire waits for a slot of a pool: see [gateway.Gateway.Acquire].
func (n *Node) Acquire(ctx context.Context, req admission.Request) (*Slot, error) {
	arrived := time.Now()
	slot, err := admitter{n.pools.gateway}.Acquire(ctx, req)
	return n.counted(ctx, req.Pool, arrived, slot, err)
}

// RedeemTicket returns the slot of a granted ticket: see [gateway.Gateway.RedeemTicket].
func (n *Node) RedeemTicket(ctx context.Context, pool, id string) (*Slot, error) {
	arrived := time.Now()
	slot, err := admitter{n.pools.gateway}.RedeemTicket(ctx, pool, id)
	return n.counted(ctx, pool, arrived, slot, err)
}

// counted wraps slot so that it is counted, and counts err.
func (n *Node) counted(ctx context.Context, pool string, arrived time.Time, slot proxy.Slot, err error) (*Slot, error) {
	s := &Slot{Slot: slot, observer: requestObserver{n.cfg.Metrics, n.data.refusals}, granted: time.Now()}
	s.rec.Pool, s.rec.Wait, s.rec.Outcome = pool, s.granted.Sub(arrived), admission.OutcomeAdmitted
	if err != nil {
		s.rec.Outcome = outcomeOf(ctx, err)
		s.observer.Done(&s.rec)
		return nil, err
	}
	s.observer.Admitted(&s.rec)
	return s, nil
}

// outcomeOf says how a request without a slot ended.
func outcomeOf(ctx context.Context, err error) admission.Outcome {
	reason := admission.Reason("")
	switch {
	case ctx.Err() != nil:
		return admission.OutcomeClientGone
	case errors.As(err, &reason):
		return reason.Outcome()
	case errors.Is(err, admission.ErrElsewhere):
		return admission.Isolated.Outcome()
	default: // the pool or the ticket is not valid
		return admission.OutcomeNone
	}
}

// Release gives the slot back. Calls after the first do nothing.
func (s *Slot) Release() {
	s.released.Do(func() {
		s.Slot.Release()
		s.rec.Hold = time.Since(s.granted)
		s.observer.Done(&s.rec)
	})
}

// Tickets are the slots that are held without a connection.
func (n *Node) Tickets() admin.Tickets { return n.pools.gateway }

// Middleware admits requests to a pool before next serves them: see
// [proxy.Handler.Middleware].
func (n *Node) Middleware(pool string, next http.Handler) http.Handler {
	return n.data.handler.Middleware(pool, next)
}

// Entitled returns the incarnation of this gateway as long as it may have requests in
// flight, else 0.
func (n *Node) Entitled() uint64 {
	if n.ctx.Err() != nil { // closed: its lease may go on for a while
		return 0
	}
	return n.peers.entitled()
}

// BreakOff ends at once whatever waits or holds a slot, without waiting for it.
func (n *Node) BreakOff() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.pools.gateway.BreakOff(ended)
}

// SetK changes a pool's k over the whole cluster, provided that it is was; with was 0,
// whatever it is.
func (n *Node) SetK(ctx context.Context, pool string, k, was int) error {
	return n.pools.SetK(ctx, pool, k, was)
}

// SetRate changes a pool's rate over the whole cluster, and returns when it holds
// everywhere.
func (n *Node) SetRate(ctx context.Context, pool string, rate Rate) error {
	return n.pools.SetRate(ctx, pool, rate)
}
