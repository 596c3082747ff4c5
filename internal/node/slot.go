package node

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// Slot is a slot of a pool that the program itself acquired, counted like a request's. The zero value
// is for AcquireInto and RedeemInto.
type Slot struct {
	slot                  // own, or a ticket's
	own      gateway.Slot // of Acquire
	metrics  *telemetry.Pool
	released atomic.Bool
}

// slot is a slot that says, after its end, how long it was held.
type slot interface {
	admission.Slot
	Held() time.Duration
}

// AcquireInto waits for a slot of a pool: see [gateway.Gateway.AcquireInto].
func (n *Node) AcquireInto(ctx context.Context, s *Slot, req *admission.Request) error {
	if err := n.pools.gateway.AcquireInto(ctx, &s.own, req); err != nil {
		arrived, _ := s.own.Times()
		return n.refused(ctx, req.Pool, arrived, err)
	}
	_, granted := s.own.Times()
	n.admitted(s, &s.own, req.Pool, granted)
	return nil
}

// RedeemInto returns the slot of a granted ticket: see [gateway.Gateway.RedeemOwn].
func (n *Node) RedeemInto(ctx context.Context, s *Slot, pool, id string, holder admission.Holder) error {
	arrived := time.Now()
	got, err := n.pools.gateway.RedeemOwn(ctx, pool, id, holder)
	if err != nil {
		return n.refused(ctx, pool, arrived, err)
	}
	n.admitted(s, got, pool, time.Now())
	return nil
}

// admitted counts the admission of a request.
func (n *Node) admitted(s *Slot, of slot, pool string, granted time.Time) {
	s.slot, s.metrics = of, n.cfg.Metrics.Pool(pool)
	s.metrics.Admitted(granted, s.Wait(), "")
}

// Wait is how long the request waited in the line; 0 for a ticket's.
func (s *Slot) Wait() time.Duration {
	arrived, granted := s.own.Times()
	return granted.Sub(arrived)
}

// refused counts a request without a slot, and returns why it has none.
func (n *Node) refused(ctx context.Context, pool string, arrived time.Time, err error) error {
	rec := proxy.Record{Pool: pool, Outcome: outcomeOf(ctx, err)}
	if !arrived.IsZero() { // the request came as far as the line
		rec.Wait = time.Since(arrived)
	}
	requestObserver{n.cfg.Metrics, n.refusals}.Done(&rec)
	return err
}

// ClientKey returns the key by which a pool tells the client of that name from others; empty for none.
func (n *Node) ClientKey(pool, name string) string {
	if name == "" {
		return ""
	}
	return n.proxy.ClientKey(pool, name)
}

// Upstream returns the URL of the upstream that the slot is for: see [admission.UpstreamOf].
func (s *Slot) Upstream() string { return admission.UpstreamOf(s.slot) }

// outcomeOf returns the outcome of a request without a slot.
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
	if s.released.Swap(true) {
		return
	}
	s.slot.Release()
	s.metrics.Hold(s.Held())
	s.metrics.Outcome(admission.OutcomeAdmitted)
}

// Position returns the place in a pool's line of a request that arrived at the given time: see
// [gateway.Gateway.Position].
func (n *Node) Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration) {
	return n.pools.gateway.Position(ctx, pool, arrived)
}

// Tickets returns the ticket API's back end.
func (n *Node) Tickets() admin.Tickets { return n.pools.gateway }

// Middleware admits requests to a pool before next serves them: see
// [proxy.Handler.Middleware].
func (n *Node) Middleware(pool string, next http.Handler) http.Handler {
	return n.proxy.Middleware(pool, next)
}

// Entitled returns this gateway's incarnation while it may have requests in flight, else 0.
func (n *Node) Entitled() uint64 {
	if n.ctx.Err() != nil { // closed: its lease may go on for a while
		return 0
	}
	return n.peers.entitled()
}

// BreakOff ends all waits and slots at once, and does not wait for their requests.
func (n *Node) BreakOff() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.pools.gateway.BreakOff(ended)
}
