package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pace"
)

// Slot is a granted request's right to be in flight. It is safe for concurrent use.
// The pool has the claim, and does not know the Slot.
type Slot struct {
	claim
	pool     *poolDriver
	released atomic.Bool
}

// Acquire waits in the line of a pool until the request is admitted, no longer than
// req.Wait, and returns its slot, which the caller must Release. It fails with an
// [admission.Refusal], with ErrUnknownPool, or with the cause of ctx's end; then
// nothing is held and no place in line is kept.
func (g *Gateway) Acquire(ctx context.Context, req admission.Request) (*Slot, error) {
	p, err := g.ready(req.Pool)
	if err != nil {
		return nil, err
	}
	s := &Slot{pool: p}
	if err = s.enter(req); err != nil {
		return nil, p.refusal(err, 0)
	}
	if s.ready == nil {
		return s, nil
	}
	var timeout <-chan time.Time
	late := admission.Timeout
	if p.hurried.Load() && (req.Wait < 0 || req.Wait > lastWait) {
		req.Wait, late = lastWait, admission.Draining
	}
	if req.Wait >= 0 {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.ready:
		// The lease may have run out between the grant and this goroutine's
		// turn: the process can have been stopped for any time.
		if err = s.err; err == nil && !s.Valid() {
			err = admission.Isolated
		}
	case <-timeout:
		err = late
	case <-ctx.Done():
		s.Release()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.Release()
		return nil, p.refusal(err, s.position)
	}
	return s, nil
}

// enter takes in a new request. One that has its slot at once has no ready channel.
func (s *Slot) enter(req admission.Request) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	others := p.waiting > 0
	if err := p.enqueue(&s.claim, req, nil); err != nil {
		return err
	}
	if others {
		p.placeSoon()
	} else {
		p.placeNow(&s.claim)
	}
	if s.state == slotWaiting {
		s.ready, s.position = make(chan struct{}), p.waiting
	}
	return nil
}

// Release gives the slot back, or leaves the line. Calls after the first do
// nothing.
func (s *Slot) Release() {
	s.released.Store(true)
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.release(&s.claim)
	s.pool.settle()
}

// Valid reports whether the slot's holder may still act on it: it has not released it,
// and the gateway's lease has not run out since. A holder that has been asleep asks before
// it does anything that others could see.
func (s *Slot) Valid() bool { return !s.released.Load() && s.pool.entitled(s.pool.self) }

// OnLost has abort called, once, when the slot may be used no longer: the gateway has
// lost its lease, or aborts its requests to stop. It is called soon after that, and
// at once if it is so already, but not after Release. It must not block.
func (s *Slot) OnLost(abort func()) {
	s.pool.mu.Lock()
	lost := s.state == slotLost || s.state == slotGranted && s.pool.broken.Load()
	if s.abort = abort; lost {
		s.abort = nil
	}
	s.pool.mu.Unlock()
	if lost {
		abort()
	}
}

// Fence names this use of a token for good, also over restarts of the cluster:
// pool, when the cluster was founded, epoch, serial. Of two uses of one token the
// later one has the greater numbers.
func (s *Slot) Fence() string {
	s.pool.mu.Lock() // a new epoch sets the grant again
	defer s.pool.mu.Unlock()
	return s.fence(s.pool.name)
}

// GrantInfo describes how the slot was granted.
func (s *Slot) GrantInfo() admission.GrantInfo {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.grantInfo()
}

// Transfer returns the two directions in which a request moves bytes. They have to be
// stopped before the slot is released.
func (s *Slot) Transfer() (down, up *pace.Flow) { return s.pool.down.Join(), s.pool.up.Join() }
