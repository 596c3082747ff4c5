package kgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// Errors of [Node.Acquire], all but ErrClosed wrapped by a *[Refused].
var (
	// ErrQueueFull: as many wait at this node as the pool's QueueLimit allows.
	ErrQueueFull error = admission.QueueFull
	// ErrClientLimit: the client has as many requests here as it may.
	ErrClientLimit error = admission.ClientLimit
	// ErrDraining: the node is being taken out of service.
	ErrDraining error = admission.Draining
	// ErrIsolated: the node is not part of the cluster (yet), or has lost its lease.
	ErrIsolated error = admission.Isolated
	// ErrCancelled: an operator took the request out of the line.
	ErrCancelled error = admission.Cancelled
	// ErrUnknownPool: the cluster has no pool of this name.
	ErrUnknownPool = admission.ErrUnknownPool
	// ErrClosed: the node has been closed.
	ErrClosed = errors.New("kgate: the node is closed")
)

// Why a context of [Slot.Context] or [Node.Middleware] has ended, as context.Cause tells
// it.
var (
	// ErrLost: the slot may be used no longer. The node has lost its lease, or stops.
	ErrLost = admission.ErrLost
	// ErrHoldMax: the slot was held for as long as the pool's HoldMax allows.
	ErrHoldMax = admission.ErrHoldMax
)

// Refused is the error of a request that the node does not admit.
type Refused struct {
	Pool string
	// RetryAfter is when it may be worthwhile to try again; 0: not known.
	RetryAfter time.Duration

	reason error
}

// Error implements error.
func (r *Refused) Error() string {
	text := r.reason.Error()
	if reason := admission.Reason(""); errors.As(r.reason, &reason) {
		text = reason.Detail()
	}
	return fmt.Sprintf("kgate: pool %s: %s", r.Pool, text)
}

// Unwrap returns the reason: ErrQueueFull, ErrClientLimit, ErrDraining, ErrIsolated,
// ErrCancelled or ErrUnknownPool.
func (r *Refused) Unwrap() error { return r.reason }

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

// Client tells the pool's clients apart, for the bounds on one client and Pool.Fair: an
// account, a key, an address.
func Client(name string) AcquireOption {
	return AcquireOption{func(a *asked) { a.client = name }}
}

// Note is shown to people who look at the line.
func Note(text string) AcquireOption {
	return AcquireOption{func(a *asked) { a.note = text }}
}

// Slot is one of a pool's k, held by this program. Its methods are safe for concurrent
// use.
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
	if n.stopping.Err() != nil {
		return nil, ErrClosed
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
		return nil, refused(pool, err)
	}
	return newSlot(got, time.Since(arrived)), nil
}

func newSlot(got *node.Slot, wait time.Duration) *Slot {
	s := &Slot{release: got.Release, lost: make(chan struct{})}
	s.held = &proxy.Held{Slot: got, Lost: s.lost, Wait: wait}
	got.OnLost(func() { s.once.Do(func() { close(s.lost) }) })
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

// Release gives the slot back. Calls after the first do nothing. A lost slot is to be
// released, too: the node counts it as in use until then.
func (s *Slot) Release() {
	if s.release != nil {
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

// Fence names this use of the slot: pool/founded/epoch/serial, no two the same. Where K
// is 1 a later use has greater numbers, compared one after the other, so that a server
// which remembers the greatest can refuse what comes too late. With more slots the order
// tells nothing: who has held a slot for long has smaller numbers than who came later.
func (s *Slot) Fence() string { return s.held.Fence() }

// Wait is how long it took to get the slot.
func (s *Slot) Wait() time.Duration { return s.held.Wait }

// Context returns a context that ends with parent, with the cause ErrLost when the slot
// is lost, and when the returned function is called. [FromContext] and [Node.Transport]
// find the slot in it.
func (s *Slot) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(proxy.WithHeld(parent, s.held))
	ended := make(chan struct{})
	var once sync.Once
	go func() {
		select {
		case <-s.held.Lost:
			cancel(ErrLost)
		case <-ended:
		case <-parent.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		once.Do(func() { close(ended) })
	}
}
