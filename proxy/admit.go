package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

// Admitter lets requests into pools. It must be safe for concurrent use.
type Admitter interface {
	// Acquire waits in the line of the pool until the request is
	// admitted, no longer than req.Wait. The caller then calls the slot's
	// Release, exactly once. The request's Holder is told if the slot is lost before that.
	//
	// It returns an *admission.Refusal when the gateway will not admit the request, not
	// in that time or not at all, and another error when ctx ended first. The
	// request has then left the line and holds nothing. A slot that is free
	// may be given even though little time is left.
	Acquire(ctx context.Context, req admission.Request) (Slot, error)
}

// Slot is the right of one request to be in flight.
type Slot = admission.Slot

// Record is the outcome of one request.
type Record struct {
	// Pool is empty for routes without admission.
	Pool string
	// TraceID is the id of the request's trace, in hexadecimal digits; empty if it has
	// none. Sampled reports whether its spans are recorded here.
	TraceID string
	Sampled bool
	Outcome admission.Outcome
	// DialFailed reports that no connection to the upstream could be made.
	DialFailed bool
	// Aborted reports that the answer ended early, after its header.
	Aborted bool
	// Grant is how its slot was granted; zero if it was not admitted.
	Grant admission.GrantInfo
	// Wait is the time from the request's arrival to its admission or, if it
	// was not admitted, to the end of its wait. It is the access time.
	Wait time.Duration
	// Hold is how long the slot was held; for routes without admission, how
	// long the upstream was busy with the request.
	Hold time.Duration
	// FirstByte is the time from admission to the upstream's response header;
	// zero if none came.
	FirstByte time.Duration
	// Upstream is host and port of the upstream, empty if none was chosen.
	Upstream string
	// UpstreamURL is the upstream as it is configured; nil if none was chosen.
	UpstreamURL *string
	// UpstreamStatus is what the upstream answered, Status what was sent to
	// the client: 499 if it had left before an answer could be given.
	UpstreamStatus, Status int
	// Bytes of the body sent to the client; upgraded connections count 0.
	Bytes int64
	// RequestBytes of the body that the client sent, as far as it was read.
	RequestBytes int64
	// Retries counts the upstreams that were tried after the first one.
	Retries int
	// NewConns and ReusedConns count the connections to upstreams that the request
	// was written to: one, unless it was sent again.
	NewConns, ReusedConns int32
}

// Observer counts requests, for metrics. Its methods are called on the
// request's goroutine: they must be fast and safe for concurrent use. A record
// is only valid during the call.
type Observer interface {
	// Admitted is called when a request of a pool has its slot. The record holds
	// what is known by then.
	Admitted(r *Record)
	// Done is called at the end of every request that matched a route.
	Done(r *Record)
}

// admit gets an HTTP request a slot: the slot of the ticket it brings, or the next one in the
// pool's line. A browser may be answered with a page instead: the error is then errAnswered.
func (v *visit) admit(ctx context.Context, w http.ResponseWriter, r *http1.Request, pool *Pool) (Slot, error) {
	if ids := r.Fields.Values(ticketHeader); len(ids) > 0 {
		return v.redeem(ctx, pool.Name, ids)
	}
	if b := newBrowser(v, pool, w, r); b != nil {
		return b.admit(ctx, func(limit time.Duration) (Slot, error) { return v.acquire(ctx, r, pool, limit) })
	}
	return v.acquire(ctx, r, pool, pool.QueueTimeout)
}

// acquire waits for the next slot in the pool's line, no longer than limit. The frames on
// the way from net/http's to the wait are small: a stack that has grown is kept as long as
// the client waits (TestWaiterStack).
func (v *visit) acquire(ctx context.Context, r *http1.Request, pool *Pool, limit time.Duration) (Slot, error) {
	if v.crowded {
		return v.acquireAtOnce(ctx, r, pool)
	}
	return v.snapshot.cfg.Admitter.Acquire(ctx, v.httpRequest(r, pool, limit))
}

// acquireAtOnce is acquire for a request that is crowded. Its head would be kept during a wait,
// however short.
func (v *visit) acquireAtOnce(ctx context.Context, r *http1.Request, pool *Pool) (Slot, error) {
	slot, err := v.snapshot.cfg.Admitter.Acquire(ctx, v.httpRequest(r, pool, 0))
	if refusal := new(admission.Refusal); errors.As(err, &refusal) && refusal.Reason == admission.Timeout {
		full := *refusal
		full.Reason = admission.QueueFull
		err = &full
	}
	return slot, err
}

// httpRequest returns what an HTTP request asks the pool's line for.
func (v *visit) httpRequest(r *http1.Request, pool *Pool, limit time.Duration) admission.Request {
	v.info.Method, v.info.Path = r.Method, r.URL.Path
	req := v.lineRequest(pool)
	if pool.TellClients {
		req.Client = v.clientKey(r, pool)
	}
	req.Wait, v.prefer = queueTimeout(limit, r.Fields)
	return req
}

// lineRequest returns what the visit asks the pool's line for. The caller adds for whom, and
// how long it may wait.
func (v *visit) lineRequest(pool *Pool) admission.Request {
	v.info.Trace = v.rec.TraceID
	req := admission.Request{Pool: pool.Name, Info: &v.info, Holder: &v.hold}
	if v.rec.Sampled {
		req.Span = spanBytes(v.spans.server.SpanContext())
	}
	return req
}

func (v *visit) enter(slot Slot) {
	v.rec.Grant, v.rec.Outcome = slot.GrantInfo(), admission.OutcomeAdmitted
	v.entered, v.standing = true, v.snapshot.cfg.Standing()
	v.traceWait()
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Admitted(&v.rec)
	}
}

// refused notes why the visit was not admitted, and returns what to answer. The header of
// the answer is filled in.
func (v *visit) refused(h http.Header, err error) problem {
	if errors.Is(err, admission.ErrUnknownPool) || errors.Is(err, admission.ErrElsewhere) {
		// The pool is not agreed on yet, or its ticket is with a gateway that does not
		// answer: both pass.
		err = &admission.Refusal{Reason: admission.Isolated}
	}
	var refusal *admission.Refusal
	if reason := admission.Reason(""); !errors.As(err, &refusal) && errors.As(err, &reason) {
		err = &admission.Refusal{Reason: reason}
	}
	var ticket *ticketError
	switch {
	case errors.As(err, &refusal):
		v.rec.Outcome, v.rec.Grant.Position = refusal.Reason.Outcome(), refusal.Position
		return newRefusal(h, v.rec.Pool, refusal, refusal.Reason.Detail())
	case errors.As(err, &ticket):
		return problem{Status: ticket.status, Detail: ticket.detail, Pool: v.rec.Pool}
	default:
		v.snapshot.cfg.Logger.Error("admission failed", slog.String("pool", v.rec.Pool), v.traceAttr(), slog.Any("error", err))
		v.rec.Outcome = admission.Isolated.Outcome()
		return problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: v.rec.Pool}
	}
}

// logFailure logs why the upstream gave no answer: once a minute for each upstream as a
// warning. The metrics count all.
func (v *visit) logFailure(ctx context.Context) {
	level := slog.LevelDebug
	if v.snapshot.once.First(v.rec.Pool + " " + v.rec.Upstream) {
		level = slog.LevelWarn
	}
	v.snapshot.cfg.Logger.LogAttrs(ctx, level, "upstream failed", slog.String("pool", v.rec.Pool),
		slog.String("upstream", v.rec.Upstream), v.traceAttr(), slog.Any("error", v.failure))
}

// done tells the observer, and ends the spans.
func (v *visit) done() {
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Done(&v.rec)
	}
	v.endTrace()
}
