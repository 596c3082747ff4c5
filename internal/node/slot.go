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

// Slot of a pool that was acquired by the program itself, counted as a request is. The zero
// value is for AcquireInto and RedeemInto.
type Slot struct {
	admission.Slot              // own, or a ticket's
	own            gateway.Slot // of Acquire
	metrics        *telemetry.Pool
	// Wait is how long the request waited in the line.
	Wait     time.Duration
	granted  time.Time
	released atomic.Bool
}

// AcquireInto waits for a slot of a pool: see [gateway.Gateway.AcquireInto].
func (n *Node) AcquireInto(ctx context.Context, s *Slot, req admission.Request) error {
	if err := n.pools.gateway.AcquireInto(ctx, &s.own, req); err != nil {
		arrived, _ := s.own.Times()
		return n.refused(ctx, req.Pool, arrived, err)
	}
	arrived, granted := s.own.Times()
	s.Wait = granted.Sub(arrived)
	n.admitted(s, &s.own, req.Pool, granted)
	return nil
}

// RedeemInto returns the slot of a granted ticket: see [gateway.Gateway.RedeemTicket].
func (n *Node) RedeemInto(ctx context.Context, s *Slot, pool, id string, holder admission.Holder) error {
	arrived := time.Now()
	slot, err := n.pools.gateway.RedeemTicket(ctx, pool, id, holder)
	if err != nil {
		return n.refused(ctx, pool, arrived, err)
	}
	n.admitted(s, slot, pool, time.Now())
	return nil
}

// admitted counts a request that has its slot.
func (n *Node) admitted(s *Slot, slot admission.Slot, pool string, granted time.Time) {
	s.Slot, s.granted, s.metrics = slot, granted, n.cfg.Metrics.Pool(pool)
	s.metrics.Wait(admission.OutcomeAdmitted, s.Wait, "")
}

// refused counts a request that has no slot, and returns why.
func (n *Node) refused(ctx context.Context, pool string, arrived time.Time, err error) error {
	rec := proxy.Record{Pool: pool, Outcome: outcomeOf(ctx, err)}
	if !arrived.IsZero() { // it came as far as the line
		rec.Wait = time.Since(arrived)
	}
	requestObserver{n.cfg.Metrics, n.data.refusals}.Done(&rec)
	return err
}

// Upstream that the slot is for: see [admission.UpstreamOf].
func (s *Slot) Upstream() string { return admission.UpstreamOf(s.Slot) }

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
	if s.released.Swap(true) {
		return
	}
	s.Slot.Release()
	s.metrics.Hold(time.Since(s.granted))
	s.metrics.Outcome(admission.OutcomeAdmitted)
}

// Position returns the place in a pool's line of a request that came at the given time: see
// [gateway.Gateway.Position].
func (n *Node) Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration) {
	return n.pools.gateway.Position(ctx, pool, arrived)
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

// SetUpstreamK changes the k of one upstream of a pool over the whole cluster, provided that it
// is was; with was 0, whatever it is.
func (n *Node) SetUpstreamK(ctx context.Context, pool, upstream string, k, was int) error {
	return n.pools.SetUpstreamK(ctx, pool, upstream, k, was)
}

// SetRate changes a pool's rate over the whole cluster, and returns when it holds
// everywhere.
func (n *Node) SetRate(ctx context.Context, pool string, rate Rate) error {
	return n.pools.SetRate(ctx, pool, rate)
}
