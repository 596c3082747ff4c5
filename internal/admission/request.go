package admission

import (
	"net/netip"
	"time"
)

// Request is what a request asks of a pool.
type Request struct {
	Pool string
	// Wait is the longest wait for a slot; negative means no limit.
	Wait time.Duration
	// Client identifies who asks, where the pool distinguishes clients; otherwise
	// empty. It can be compared and means nothing else.
	Client string
	// HoldMax is how long a ticket may keep its slot, however often it is renewed; 0
	// means no limit. It does not apply to requests, which the proxy ends itself.
	HoldMax time.Duration
	// Span identifies the request's span if it is sampled: trace id and span id, 24
	// bytes. The next holder of its token links to it. Empty: not sampled.
	Span string
	// Info describes the request to people who look at the line; nil: nothing is
	// known. It must not change until the slot is released.
	Info *RequestInfo
}

// RequestInfo describes a request to people.
type RequestInfo struct {
	// Method and Path of the request, the path without its query, which may hold
	// secrets.
	Method, Path string
	// Note of who asks, where that is a program and no HTTP request.
	Note string
	// Remote is the client's address.
	Remote netip.Addr
	// Trace is the id of the request's trace; empty: none.
	Trace string
}

// GrantInfo describes how a slot was granted.
type GrantInfo struct {
	// Position among those that waited at this gateway when the request arrived, 1
	// for the next; 0 if it did not wait.
	Position int
	// Token of the pool that the slot stands for, from 0.
	Token int
	// Epoch of the pool, and Serial of the grant in it, as in the fence.
	Epoch, Serial uint64
	// After is the span of the previous holder of the token, at whatever gateway;
	// empty if that one was not sampled or is not known.
	After string
}
