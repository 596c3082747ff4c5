package gateway

import (
	"context"
	"io"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/kmutex"
)

// Slot is a granted request's right to be in flight. It is safe for concurrent use.
// The pool has the claim, and does not know the Slot.
type Slot struct {
	claim
	pool *poolDriver
}

var _ admission.Slot = (*Slot)(nil)

// Acquire waits in the line of a pool until the request is admitted, no longer than
// req.Wait, and returns its slot, which the caller must Release. It fails with an
// [admission.Refusal], with ErrUnknownPool, or with the cause of ctx's end; then
// nothing is held and no place in line is kept.
func (g *Gateway) Acquire(ctx context.Context, req admission.Request) (admission.Slot, error) {
	s := new(Slot)
	if err := g.AcquireInto(ctx, s, &req); err != nil {
		return nil, err
	}
	return s, nil
}

// AcquireInto is Acquire for a slot that is a part of something else: s is a zero Slot, and is
// that of the request if the error is nil.
func (g *Gateway) AcquireInto(ctx context.Context, s *Slot, req *admission.Request) error {
	p, err := g.ready(req.Pool)
	if err != nil {
		return err
	}
	s.pool = p
	if err := s.enter(req); err != nil || s.ready == nil {
		return err
	}
	return s.await(ctx, req.Wait)
}

// enter takes in a new request, or refuses it. One that has its slot at once has no ready
// channel.
func (s *Slot) enter(req *admission.Request) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instant = p.now()
	defer p.over()
	others := p.waiting > 0
	if err := p.enqueue(&s.claim, req, nil); err != nil {
		return p.refusal(err, 0)
	}
	if others {
		p.placeSoon()
	} else {
		p.placeNow(&s.claim)
	}
	if s.state == slotWaiting {
		s.ready, s.given.Position = make(chan struct{}), p.waiting
	}
	return nil
}

// await waits until the request is admitted, no longer than longest; negative: for ever.
func (s *Slot) await(ctx context.Context, longest time.Duration) (err error) {
	late := admission.Timeout
	if s.pool.hurried.Load() && (longest < 0 || longest > lastWait) {
		longest, late = lastWait, admission.Draining
	}
	if longest >= 0 {
		ready := s.ready
		defer time.AfterFunc(longest, func() { s.expire(ready, late) }).Stop()
	}
	if c, ok := ctx.(attacher); ok {
		c.Attach(waiter{s, c})
		<-s.ready
		c.Detach()
	} else {
		select {
		case <-s.ready:
		case <-ctx.Done():
			s.Release()
			return context.Cause(ctx)
		}
	}
	// The lease may have run out between the grant and this goroutine's
	// turn: the process can have been stopped for any time.
	switch {
	case s.err != nil:
		return s.leave(s.err)
	case !s.Valid():
		return s.leave(admission.Isolated)
	default:
		return nil
	}
}

// attacher is a context that closes one thing when it ends. Thousands wait: a channel for the end of each,
// and to wait for two channels, would take 220 bytes of each.
type attacher interface {
	Attach(c io.Closer)
	Detach() bool
	Cause() error
}

// waiter ends the wait of a request whose context ends.
type waiter struct {
	slot *Slot
	ctx  attacher
}

// Close implements io.Closer.
func (w waiter) Close() error {
	w.slot.expire(nil, w.ctx.Cause())
	return nil
}

// expire ends the wait of a request that waits still: the one whose end closes ready, or any if that is nil. A
// timer may come so late that the request waits again.
func (s *Slot) expire(ready chan struct{}, why error) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.state == slotWaiting && (ready == nil || ready == s.ready) {
		s.err = why
		s.pool.end(&s.claim)
	}
}

// leave gives up what s has, and returns the refusal.
func (s *Slot) leave(why error) error {
	s.released.Store(true)
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.end(&s.claim)
	return s.pool.refusal(why, s.given.Position)
}

// Times returns when the request came, and when it got the slot.
func (s *Slot) Times() (arrived, granted time.Time) { return s.since, s.at }

// Again gives the slot back whose upstream could not be reached, and waits for another one,
// no longer than wait: ahead of all that wait at this gateway, with the place in line that it
// had. It fails as Acquire does; then nothing is held. The caller bars the upstream first, or
// may get the same one again.
func (s *Slot) Again(ctx context.Context, wait time.Duration) error {
	if err := s.giveBack(); err != nil {
		return s.leave(err)
	}
	return s.await(ctx, wait)
}

// giveBack lets s wait for another slot in place of the one that it has.
func (s *Slot) giveBack() error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s.state != slotGranted:
		return admission.Isolated
	case p.outOfReach:
		return admission.UpstreamDown
	}
	p.again(&s.claim)
	p.settle()
	return nil
}

// Release gives the slot back, or leaves the line. Calls after the first do
// nothing.
func (s *Slot) Release() {
	if s.released.Swap(true) {
		return
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instant = p.now()
	defer p.over()
	p.end(&s.claim)
}

// Held is how long ago the slot was granted.
func (s *Slot) Held() time.Duration { return s.pool.now().Sub(s.at) }

// Valid reports whether the slot's holder may still act on it: it has not released it,
// and the gateway's lease has not run out since. A holder that has been asleep asks before
// it does anything that others could see.
func (s *Slot) Valid() bool { return !s.released.Load() && s.pool.entitled(s.owner) }

// Fence names this use of a token for good, also over restarts of the cluster:
// pool, when the cluster was founded, epoch, serial. Of two uses of one token the
// later one has the greater numbers.
func (s *Slot) Fence() string { return s.fence(s.pool.name) }

// GrantInfo describes how the slot was granted.
func (s *Slot) GrantInfo() admission.GrantInfo { return s.given }

// Upstream returns the URL of the upstream that the slot is for; empty: it is for any.
func (s *Slot) Upstream() string {
	if spec := s.pool.classed.Load(); spec != nil {
		return spec.Upstream(kmutex.Token(s.given.Token)) // no lock: a token keeps its upstream while anybody can hold it
	}
	return ""
}

// Pacers returns what paces the two directions in which a request moves bytes. Its flows have to be
// stopped before the slot is released.
func (s *Slot) Pacers() (down, up *pace.Pacer) { return s.pool.pacers() }
