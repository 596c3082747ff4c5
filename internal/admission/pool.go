package admission

// Binding says when the coordinator ties a request to a token.
type Binding string

// The bindings.
const (
	// BindingLate ties a request to a token when the token is free.
	BindingLate Binding = "late"
	// BindingEarly ties it on arrival, as the published algorithm does.
	BindingEarly Binding = "early"
)

// Reclaim says when a lost gateway's slots come back.
type Reclaim string

// The ways to reclaim.
const (
	// ReclaimLease waits for the end of the lost gateway's lease.
	ReclaimLease Reclaim = "lease"
	// ReclaimHold also waits until hold.max has passed, for upstreams that finish
	// their work without the client.
	ReclaimHold Reclaim = "hold"
)
