package kgate

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// AcquireOption says more about who acquires a slot: [Client], [Note].
type AcquireOption struct{ set func(*asked) }

// asked is what options say.
type asked struct{ client, note string }

func askedBy(options []AcquireOption) (a asked) {
	for _, o := range options {
		if o.set != nil {
			o.set(&a)
		}
	}
	return a
}

// Client names the client, such as an account, a key or an address, for the limits of one
// client and Pool.Fair.
func Client(name string) AcquireOption {
	return AcquireOption{func(a *asked) { a.client = name }}
}

// Note is shown to people who look at the line.
func Note(text string) AcquireOption {
	return AcquireOption{func(a *asked) { a.note = text }}
}

// Slot is one of a pool's k slots, held by this program, for one request at a time: see
// [Node.Transport]. Its methods are safe for concurrent use.
type Slot struct {
	held    *proxy.Held
	release func() // nil: Middleware releases it
	lost    chan struct{}
	once    sync.Once // of lost
}

// Acquire waits in the line of a pool until it has a slot, for as long as ctx lasts. The
// caller must Release the slot. It fails with a *[Refused], with ErrClosed, or with the
// cause of ctx's end; then nothing is held. It does not wait for the node to be ready,
// nor for the end of a split: that is ErrIsolated, at once. See [Node.Ready].
func (n *Node) Acquire(ctx context.Context, pool string, options ...AcquireOption) (*Slot, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if n.stopping.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil { // a caller that has gone would not Release
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.stopping, func() { cancel(ErrClosed) })()
	by := askedBy(options)
	req := admission.Request{Pool: pool, Client: by.client, Wait: -1, Info: &admission.RequestInfo{Note: by.note}}
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		id, span := sc.TraceID(), sc.SpanID()
		req.Span = string(id[:]) + string(span[:])
	}
	arrived := time.Now()
	got, err := n.node.Acquire(ctx, req)
	if err != nil {
		return nil, n.refused(pool, err)
	}
	return newSlot(got, time.Since(arrived)), nil
}

// refused translates the error of a request for a slot, or for a place in line.
func (n *Node) refused(pool string, err error) error {
	reason, retryAfter := admission.Reason(""), time.Duration(0)
	if refusal := (*admission.Refusal)(nil); errors.As(err, &refusal) {
		retryAfter = refusal.RetryAfter
	}
	switch {
	case errors.Is(err, admission.ErrUnknownPool):
		return &Refused{Pool: pool, reason: ErrUnknownPool, text: withoutPackages(err.Error()) + "; add it to Config.Pools"}
	case !errors.As(err, &reason):
		return err
	}
	text := reason.Detail()
	if missing := n.NotReady(); reason == admission.Isolated && missing != "" {
		text = "this node may not admit requests now: " + missing + "; Node.Ready waits until it may"
	}
	return &Refused{Pool: pool, RetryAfter: retryAfter, reason: reason, text: text}
}

func newSlot(got *node.Slot, wait time.Duration) *Slot {
	s := &Slot{release: got.Release, lost: make(chan struct{})}
	s.held = &proxy.Held{Slot: got, Lost: s.lost, Wait: wait}
	got.OnLost(func() {
		s.once.Do(func() {
			close(s.lost)
			go s.held.End(ErrLost) // the caller has other slots to end
		})
	})
	return s
}

// FromContext returns the slot that [Node.Middleware] or [Slot.Context] has put into a
// context; nil if there is none. Release does nothing on it.
func FromContext(ctx context.Context) *Slot {
	if held := proxy.HeldIn(ctx); held != nil {
		return &Slot{held: held}
	}
	return nil
}

// Release gives the slot back, once all has ended that used it: contexts of [Slot.Context],
// and a request of [Node.Transport], whose connection is closed or stream reset, however much
// of its answer is still to be read. That takes five seconds at most, where a server does not
// confirm the end of a stream. Calls after the first do nothing. A lost slot is to be
// released, too: the node counts it as in use until then.
func (s *Slot) Release() {
	if s.release != nil {
		s.held.End(ErrLost)
		s.release()
	}
}

// Lost is closed when the slot may be used no longer: the node has lost its lease, or
// stops. Others get the slot once the lease has run out.
func (s *Slot) Lost() <-chan struct{} { return s.held.Lost }

// Valid reports whether the slot may still be used. It is exact where Lost is late: a
// process that was stopped asks it before it does anything that others could see.
func (s *Slot) Valid() bool {
	select {
	case <-s.held.Lost:
		return false
	default:
		return s.held.Valid()
	}
}

// Fence names this use of the slot: pool/founded/epoch/serial. No two are the same. If K is
// 1, a later use has greater numbers, compared one after the other, so a server that
// remembers the greatest can refuse writes that come too late. With more slots the order
// means nothing: a use that lasts long has smaller numbers than later ones.
func (s *Slot) Fence() string { return s.held.Fence() }

// Wait is how long it took to get the slot.
func (s *Slot) Wait() time.Duration { return s.held.Wait }

// Context returns a context that ends with parent, when the slot is lost or released, with the
// cause ErrLost, and when the returned function is called. [FromContext] and
// [Node.Transport] find the slot in it.
func (s *Slot) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(proxy.WithHeld(parent, s.held))
	context.AfterFunc(ctx, s.held.Attach(cancel))
	return ctx, func() { cancel(nil) }
}
