package admission

import (
	"net/netip"
	"time"
)

// Request is a request for a slot of a pool.
type Request struct {
	Pool string
	// Wait is the longest wait for a slot; negative means no limit.
	Wait time.Duration
	// Client identifies the client if the pool distinguishes clients, else it is empty. It can be
	// compared and has no other meaning.
	Client string
	// Counted: the ticket counts among those of the client, of which it may have so many.
	Counted bool
	// HoldMax is how long a ticket may keep its slot, however often it is renewed; 0
	// means no limit. It does not apply to requests, which the proxy ends itself.
	HoldMax time.Duration
	// Span identifies the request's span if it is sampled: trace id and span id, 24
	// bytes. The next holder of its token links to it. Empty: not sampled.
	Span string
	// Info describes the request to people who look at the line; nil: nothing is
	// known. It must not change until the slot is released.
	Info *RequestInfo
	// Holder is told when the slot is lost; nil: nobody is.
	Holder Holder
}

// Holder is notified of the loss of its slot.
type Holder interface {
	// LoseSlot is called once, soon after the slot may be used no longer, and not after its
	// Release. It may be called before Acquire has returned: then the slot is lost already, or
	// Acquire fails. It must not block.
	LoseSlot()
}

// Slot is the right of one request to be in flight. It is safe for concurrent use.
type Slot interface {
	// Release gives the slot back. It is called once, also for a lost slot, when the upstream has
	// finished with the request.
	Release()
	// Fence returns the value of the header Kgate-Fence: pool/founded/epoch/serial. No two are the
	// same, so that an upstream can recognize a request that comes too late.
	Fence() string
	// Valid reports whether the slot may still be used: a gateway that has lost its lease sends
	// nothing. It is asked before each write to the upstream and must be fast.
	Valid() bool
	// GrantInfo describes how the slot was granted.
	GrantInfo() GrantInfo
}

// RequestInfo describes a request to people.
type RequestInfo struct {
	// Method and Path of the request, the path without its query, which may hold
	// secrets.
	Method, Path string
	// Note describes the caller, if it is a program and not an HTTP request.
	Note string
	// Remote is the client's address.
	Remote netip.Addr
	// Trace is the id of the request's trace; empty: none.
	Trace string
}

// GrantInfo describes how a slot was granted.
type GrantInfo struct {
	// Position is the request's place among the requests that waited at this gateway when it
	// arrived, from 1; 0 if it did not wait.
	Position int
	// Token of the pool that the slot stands for, from 0.
	Token int
	// Epoch of the pool, and Serial of the grant in it, as in the fence.
	Epoch, Serial uint64
	// After is the span of the token's previous holder, at any gateway; empty if the holder was
	// not sampled or is not known.
	After string
}
