package proxy

import (
	"context"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Admitter lets requests into pools. It must be safe for concurrent use.
type Admitter interface {
	// Acquire waits in the line of the pool until the request is
	// admitted, no longer than req.Wait. The caller then calls the slot's
	// Release, exactly once.
	//
	// It returns an *admission.Refusal when the gateway will not admit the request, not
	// in that time or not at all, and another error when ctx ended first. The
	// request has then left the line and holds nothing. A slot that is free
	// may be given even though little time is left.
	Acquire(ctx context.Context, req admission.Request) (Slot, error)
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
	// GrantInfo describes how the slot was granted.
	GrantInfo() admission.GrantInfo
}

// Record is what one request came to.
type Record struct {
	// Pool is empty for routes without admission.
	Pool    string
	Outcome admission.Outcome
	// TraceID of the request in hexadecimal digits: the one that it brought, or
	// of the trace that was begun for it; else empty. Sampled tells that its
	// spans are recorded here.
	TraceID string
	Sampled bool
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
	// NewConns and ReusedConns count the connections to upstreams that the request
	// was written to: one, unless it was sent again.
	NewConns, ReusedConns int
	// Aborted reports that the answer was broken off after its header.
	Aborted bool
}

// Observer counts requests, for metrics. Its methods are called on the
// request's goroutine: they must be fast and safe for concurrent use. A record
// is only valid during the call.
type Observer interface {
	// Admitted is called when a request of a pool has got its slot. The record
	// tells what is known by then.
	Admitted(r *Record)
	// Done is called at the end of every request that matched a route.
	Done(r *Record)
}
