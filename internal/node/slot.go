package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/proxy"
)

// Slot of a pool that was acquired by the program itself, counted as a request is.
type Slot struct {
	*gateway.Slot
	observer requestObserver
	rec      proxy.Record
	granted  time.Time
	released sync.Once
}

// Acquire waits for a slot of a pool: see [gateway.Gateway.Acquire].
func (n *Node) Acquire(ctx context.Context, req admission.Request) (*Slot, error) {
	arrived := time.Now()
	slot, err := n.pools.gateway.Acquire(ctx, req)
	s := &Slot{Slot: slot, observer: requestObserver{n.cfg.Metrics, n.data.refusals}, granted: time.Now()}
	s.rec.Pool, s.rec.Wait, s.rec.Outcome = req.Pool, s.granted.Sub(arrived), admission.OutcomeAdmitted
	if err != nil {
		s.rec.Outcome = admission.OutcomeClientGone
		if reason := admission.Reason(""); errors.As(err, &reason) {
			s.rec.Outcome = reason.Outcome()
		}
		s.observer.Done(&s.rec)
		return nil, err
	}
	s.observer.Admitted(&s.rec)
	return s, nil
}

// Release gives the slot back. Calls after the first do nothing.
func (s *Slot) Release() {
	s.Slot.Release()
	s.released.Do(func() {
		s.rec.Hold = time.Since(s.granted)
		s.observer.Done(&s.rec)
	})
}

// Middleware admits requests to a pool before next serves them: see
// [proxy.Handler.Middleware].
func (n *Node) Middleware(pool string, next http.Handler) http.Handler {
	return n.data.handler.Middleware(pool, next)
}

// Entitled returns the incarnation of this gateway as long as it may have requests in
// flight, else 0.
func (n *Node) Entitled() uint64 { return n.peers.entitled() }

// BreakOff ends at once whatever waits or holds a slot, without waiting for it.
func (n *Node) BreakOff() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.pools.gateway.BreakOff(ended)
}

// SetK changes a pool's k over the whole cluster, if it is was; was 0: whatever it is.
func (n *Node) SetK(ctx context.Context, pool string, k, was int) error {
	return n.peers.cluster.SetK(ctx, pool, k, was)
}
