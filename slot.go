package kgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// Option says more about who asks for a slot: [Client], [Note], [OnWait].
type Option struct{ set func(*asked) }

// asked is what options say.
type asked struct {
	client, note string
	onWait       func(place int, expected time.Duration)
}

// nothing is asked by no options, as usual.
var nothing asked

func askedBy(options []Option) *asked {
	if len(options) == 0 {
		return &nothing
	}
	a := new(asked)
	for _, o := range options {
		if o.set != nil {
			o.set(a)
		}
	}
	return a
}

// Client names the client, such as an account, a key or an address, for the limits of one
// client and Pool.Fair.
func Client(name string) Option { return Option{func(a *asked) { a.client = name }} }

// Note is shown to people who look at the line, and in the log if the slot is forgotten.
func Note(text string) Option { return Option{func(a *asked) { a.note = text }} }

// OnWait has f called about once a second while Acquire waits, with the place in line, from 1,
// over all nodes, and the wait to expect; 0: it is not known. Acquire does not return before f.
func OnWait(f func(place int, expected time.Duration)) Option {
	return Option{func(a *asked) { a.onWait = f }}
}

// Slot is one of a pool's k slots, held by this program, for one request at a time: see
// [Node.Transport]. Its methods are safe for concurrent use. The zero Slot, and nil, is one that
// was released.
type Slot struct {
	held *proxy.Held
	own  *owned // nil: Middleware releases it
}

// owned is a slot that the program releases.
type owned struct {
	Slot
	held proxy.Held
	got  node.Slot
}

// LoseSlot implements admission.Holder.
func (o *owned) LoseSlot() { o.held.Lose(ErrLost) }

// given returns the slot, which o has got by now.
func (o *owned) given() *Slot {
	o.held.Slot, o.held.Wait = &o.got, o.got.Wait()
	o.Slot = Slot{held: &o.held, own: o}
	return &o.Slot
}

// Acquire waits in the line of a pool until it has a slot, for as long as ctx lasts, also while
// the node is not ready. The caller must Release the slot. Acquire fails with a *[RefusedError],
// with ErrClosed, or with the cause of ctx's end; then nothing is held.
func (n *Node) Acquire(ctx context.Context, pool string, options ...Option) (*Slot, error) {
	by := askedBy(options)
	if by.onWait != nil {
		defer n.tellPlace(ctx, pool, by.onWait)()
	}
	s, err := n.acquire(ctx, pool, by, -1)
	if err == nil || !n.mayPass(err) {
		return s, err
	}
	err = n.whenReady(ctx, func() (err error) {
		s, err = n.acquire(ctx, pool, by, -1)
		return err
	})
	return s, err
}

// tryFor is how long TryAcquire waits for a slot that is free at another node.
const tryFor = 100 * time.Millisecond

// TryAcquire is Acquire for a slot that is free now. It waits for a tenth of a second at most, in
// which a free slot comes from another node, and fails with ErrBusy if there is none, and with
// ErrIsolated if the node is not ready.
func (n *Node) TryAcquire(ctx context.Context, pool string, options ...Option) (*Slot, error) {
	return n.acquire(ctx, pool, askedBy(options), tryFor)
}

// Do calls work with a slot of the pool, and returns its error. Work's context ends when the slot
// is lost; then the error is ErrLost, too.
func (n *Node) Do(ctx context.Context, pool string, work func(context.Context) error, options ...Option) error {
	slot, err := n.Acquire(ctx, pool, options...)
	if err != nil {
		return err
	}
	defer slot.Release()
	ctx, cancel := slot.Context(ctx)
	defer cancel()
	err = work(ctx)
	if errors.Is(context.Cause(ctx), ErrLost) && !errors.Is(err, ErrLost) {
		err = errors.Join(ErrLost, err)
	}
	return err
}

// acquire asks once, and waits for that long in the line; negative: as long as ctx lasts. While it
// waits its goroutine has all this on its stack, and that of the functions below: what is
// not needed then is in other functions.
func (n *Node) acquire(ctx context.Context, pool string, by *asked, longest time.Duration) (*Slot, error) {
	if err := n.check(ctx); err != nil {
		return nil, err
	}
	o := new(owned)
	var req admission.Request // a literal would be on the stack twice
	req.Pool, req.Client, req.Wait, req.Holder, req.Span = pool, n.node.ClientKey(pool, by.client), longest, o, spanIn(ctx)
	if by.note != "" {
		req.Info = &admission.RequestInfo{Note: by.note}
	}
	if err := n.node.AcquireInto(ctx, &o.got, &req); err != nil {
		if n.stopping.Err() != nil && ctx.Err() == nil {
			return nil, ErrClosed
		}
		return nil, n.refused(pool, err)
	}
	return o.given(), nil
}

// spanIn names the span of ctx, if it is sampled.
func spanIn(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() {
		return ""
	}
	id, span := sc.TraceID(), sc.SpanID()
	return string(id[:]) + string(span[:])
}

// refused translates the error of a request for a slot, or for a place in line.
func (n *Node) refused(pool string, err error) error {
	reason, out := admission.Reason(""), &RefusedError{Pool: pool}
	if refusal := (*admission.Refusal)(nil); errors.As(err, &refusal) {
		out.RetryAfter = refusal.RetryAfter
	}
	switch {
	case errors.Is(err, admission.ErrUnknownPool):
		out.Reason, out.text = ErrUnknownPool, strings.TrimPrefix(err.Error(), "kgate: ")+"; add it to Config.Pools"
		return out
	case !errors.As(err, &reason):
		return err
	}
	out.Reason, out.text = reason, reason.Detail()
	if missing := n.NotReady(); reason == admission.Isolated && missing != "" {
		out.text = "this node may not admit requests now: " + missing
	}
	return out
}

// mayPass reports whether an error says only that the node does not take part in its cluster yet,
// or no longer.
func (n *Node) mayPass(err error) bool {
	return errors.Is(err, ErrIsolated) || errors.Is(err, ErrUnknownPool) && n.NotReady() != ""
}

// whenReady calls do when the node is ready, and again while that fails only because it is not.
func (n *Node) whenReady(ctx context.Context, do func() error) error {
	const (
		every = time.Second           // also to see that the node drains
		pause = 10 * time.Millisecond // where it is ready, and refuses all the same
	)
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.stopping, cancel)()
	for {
		round, end := context.WithTimeout(waits, every)
		missing := n.node.AwaitReady(round)
		end()
		if missing != "" && ctx.Err() != nil {
			return fmt.Errorf("kgate: not ready: %s: %w", missing, context.Cause(ctx))
		}
		if err := do(); err == nil || !n.mayPass(err) {
			return err
		}
		select {
		case <-waits.Done():
		case <-time.After(pause):
		}
	}
}

// tellPlace tells f where in line a request is that comes now, until the function that it
// returns is called.
func (n *Node) tellPlace(ctx context.Context, pool string, f func(int, time.Duration)) (stop func()) {
	if n.check(ctx) != nil {
		return func() {}
	}
	arrived := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		const first, every = 50 * time.Millisecond, time.Second
		for next := time.NewTimer(first); ; next.Reset(every) {
			select {
			case <-next.C:
			case <-ctx.Done():
				next.Stop()
				return
			}
			if place, expected := n.node.Position(ctx, pool, arrived); ctx.Err() == nil && place > 0 {
				f(place, expected)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
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
	if s != nil && s.own != nil {
		s.held.End(ErrLost)
		s.own.got.Release()
	}
}

// closed is the channel of slots that never were.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// never reports whether the slot was never given.
func (s *Slot) never() bool { return s == nil || s.held == nil }

// Lost is closed when the slot may be used no longer: the node has lost its lease, or
// stops. Others get the slot once the lease has run out.
func (s *Slot) Lost() <-chan struct{} {
	if s.never() {
		return closed
	}
	return s.held.Lost()
}

// Valid reports whether the slot may still be used. It is exact where Lost is late: a
// process that was stopped asks it before it does anything that others could see.
func (s *Slot) Valid() bool { return !s.never() && !s.held.IsLost() && s.held.Valid() }

// Fence names this use of the slot: pool/founded/epoch/serial. No two are the same. If K is
// 1, a later use has greater numbers, compared one after the other, so a server that
// remembers the greatest can refuse writes that come too late. With more slots the order
// means nothing: a use that lasts long has smaller numbers than later ones.
func (s *Slot) Fence() string {
	if s.never() {
		return ""
	}
	return s.held.Fence()
}

// Upstream is the URL of the upstream that the slot is for; empty where the pool has no upstreams
// with a k of their own, as the gateways of package gateway and `kgate serve` may have.
func (s *Slot) Upstream() string {
	if s.never() {
		return ""
	}
	return admission.UpstreamOf(s.held.Slot)
}

// Wait is how long the request waited in the line for the slot; 0 for a ticket's slot.
func (s *Slot) Wait() time.Duration {
	if s.never() {
		return 0
	}
	return s.held.Wait
}

// Context returns a context that ends with parent, when the slot is lost or released, with the
// cause ErrLost, and when the returned function is called. [FromContext] and
// [Node.Transport] find the slot in it.
func (s *Slot) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if s.never() {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(ErrLost)
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(proxy.WithHeld(parent, s.held))
	context.AfterFunc(ctx, s.held.Attach(cancel))
	return ctx, func() { cancel(nil) }
}
