package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

// Admitter lets requests into pools. It must be safe for concurrent use.
type Admitter interface {
	// Acquire waits in the line of the asked pool until the request is
	// admitted, no longer than ask.Wait. The caller then calls the slot's
	// Release, exactly once.
	//
	// It returns a *Refusal when the gateway will not admit the request, not
	// in that time or not at all, and another error when ctx ended first. The
	// request has then left the line and holds nothing. A slot that is free
	// may be given even though little time is left.
	Acquire(ctx context.Context, ask Ask) (Slot, error)
}

// Ask is what a request wants of the line.
type Ask struct {
	Pool string
	// Wait is the longest wait; negative is without limit.
	Wait time.Duration
	// Client is who asks, where the pool tells clients apart; empty: nobody in
	// particular. It can be compared and says nothing else.
	Client string
	// HoldMax is the longest that a ticket keeps its slot; 0: no bound. It says
	// nothing of requests, which the proxy ends by itself.
	HoldMax time.Duration
	// Span of the request if it is sampled, the ids of its trace and of itself in
	// 24 bytes; else empty.
	Span string
	// Request describes it to people who look at the line. It does not change
	// until the slot is released.
	Request *Note
}

// Note describes a request to people who look at the line.
type Note struct {
	// Method and Path of the request, the path without its query, which may hold
	// secrets.
	Method, Path string
	// Remote is the client's address.
	Remote netip.Addr
	// Trace is the id of the request's trace, empty without one.
	Trace string
}

// Slot is the right of one request to be in flight. It must be safe for
// concurrent use.
type Slot interface {
	// Release gives the slot back. It is called exactly once, when the
	// upstream has nothing more to do with the request; also for a lost slot.
	Release()
	// Fence is the value of the header Kgate-Fence: pool/founded/epoch/serial, no
	// two the same, so that an upstream can tell what comes too late.
	Fence() string
	// Valid reports whether the slot may still be used: a gateway that has
	// lost its lease sends nothing. It is asked before each write to the
	// upstream and must be fast.
	Valid() bool
	// OnLost has abort called once, soon after the slot may be used no longer;
	// at once if it already may not. It is not called after Release.
	OnLost(abort func())
	// Entry tells how the request came in.
	Entry() Entry
}

// Entry is how a request came in: what an account of its wait can name.
type Entry struct {
	// Position is the request's place among those that waited at this gateway
	// when it asked, 1 for the next; 0 if it did not wait.
	Position int
	// Token of the pool that the request holds, from 0.
	Token int
	// Epoch of the pool and Serial of the admission in it, as in the fence.
	Epoch, Serial uint64
	// After is the span of the request that had the token before, at whatever
	// gateway, as in Ask; empty if it was not sampled, or is not known.
	After string
}

// Reason says why a request was refused. Its text is the value of the header
// Kgate-Refusal.
type Reason string

// The reasons.
const (
	ReasonQueueFull Reason = "queue-full"
	ReasonTimeout   Reason = "timeout"
	ReasonDraining  Reason = "draining"
	ReasonIsolated  Reason = "isolated"
	// ReasonClientLimit: as many of this client's requests as the pool allows
	// wait here already.
	ReasonClientLimit Reason = "client-limit"
	// ReasonCancelled: an operator has taken the request out of the line.
	ReasonCancelled Reason = "cancelled"
	// ReasonUpstreamDown: no upstream of the pool passes its health checks.
	ReasonUpstreamDown Reason = "upstream-down"
)

// status is what a client gets that was refused for this reason.
func (r Reason) status() int {
	if r == ReasonClientLimit {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Refusal is the error of a request that the gateway will not admit. The client
// gets status 503, or 429 for a limit of its own.
type Refusal struct {
	Reason Reason
	// RetryAfter is when it may be worth while to come again. The client is
	// told whole seconds, at least one.
	RetryAfter time.Duration
	// Limit that was reached, for the header RateLimit-Policy: the client's own for
	// ReasonClientLimit, else the pool's k; 0 leaves the header out.
	Limit int
	// Position is the request's place among those that waited at this gateway when
	// it asked, 1 for the next; 0 if it did not wait.
	Position int
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("proxy: request refused: %s", r.Reason)
}

// Outcome is what became of a request, as the metrics name it.
type Outcome uint8

// The outcomes.
const (
	// OutcomeNone: the request neither got a slot nor waited for one: no route
	// matched, it was malformed, it got a ticket, or its own was no good.
	OutcomeNone Outcome = iota
	// OutcomeAdmitted: admitted and answered by the upstream, whatever its
	// status; also when the client went away, or the slot was lost or held for
	// too long, during the answer.
	OutcomeAdmitted
	// OutcomeQueueFull: refused, the line was full.
	OutcomeQueueFull
	// OutcomeTimeout: refused, not admitted in time.
	OutcomeTimeout
	// OutcomeClientGone: the client left before it was admitted.
	OutcomeClientGone
	// OutcomeDraining: refused, the gateway is being taken out.
	OutcomeDraining
	// OutcomeIsolated: refused, the gateway may admit nothing because it has
	// lost touch with the others; or admitted and broken off for that reason
	// before there was an answer.
	OutcomeIsolated
	// OutcomeClientLimit: refused, too many of its client's requests wait.
	OutcomeClientLimit
	// OutcomeCancelled: refused, an operator took it out of the line.
	OutcomeCancelled
	// OutcomeUpstreamDown: refused, before or after its wait, since no upstream
	// of the pool passes its health checks.
	OutcomeUpstreamDown
	// OutcomeUpstreamError: admitted, but the upstream could not be reached,
	// did not answer in time, hold.max and hold.idle included, or broke off its
	// answer.
	OutcomeUpstreamError

	outcomeEnd
)

var outcomeNames = [outcomeEnd]string{
	"none", "admitted", "queue_full", "timeout", "client_gone", "draining", "isolated", "client_limit", "cancelled", "upstream_down", "upstream_error",
}

// String returns the outcome's name in metrics and logs.
func (o Outcome) String() string {
	if o >= outcomeEnd {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return outcomeNames[o]
}

func (r *Refusal) outcome() Outcome {
	switch r.Reason {
	case ReasonQueueFull:
		return OutcomeQueueFull
	case ReasonTimeout:
		return OutcomeTimeout
	case ReasonDraining:
		return OutcomeDraining
	case ReasonIsolated:
		return OutcomeIsolated
	case ReasonClientLimit:
		return OutcomeClientLimit
	case ReasonCancelled:
		return OutcomeCancelled
	case ReasonUpstreamDown:
		return OutcomeUpstreamDown
	default:
		return OutcomeIsolated
	}
}

// Record is what one request came to.
type Record struct {
	// Pool is empty for routes without admission.
	Pool    string
	Outcome Outcome
	// TraceID of the request in hexadecimal digits: the one that it brought, or
	// of the trace that was begun for it; else empty. Sampled tells that its
	// spans are recorded here.
	TraceID string
	Sampled bool
	// Entry is how it came in; zero if it was not admitted.
	Entry Entry
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
	// DialFailed reports that no connection to the upstream could be made.
	DialFailed bool
	// UpstreamStatus is what the upstream answered, Status what was sent to
	// the client: 499 if it had left before an answer could be given.
	UpstreamStatus, Status int
	// Bytes of the body sent to the client; upgraded connections count 0.
	Bytes int64
	// RequestBytes of the body that the client sent, as far as it was read.
	RequestBytes int64
	// Retries counts the upstreams that were tried after the first one.
	Retries int
	// Aborted reports that the answer was broken off after its header.
	Aborted bool
}

// Observer is told about requests, for metrics. Its methods are called on the
// request's goroutine: they must be fast and safe for concurrent use. A record
// is only valid during the call.
type Observer interface {
	// Admitted is called when a request of a pool has got its slot. The record
	// tells what is known by then.
	Admitted(r *Record)
	// Done is called at the end of every request that matched a route.
	Done(r *Record)
}
