package lease

import (
	"time"

	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/kmutex"
)

// Terms are the same for all gateways of a cluster.
type Terms struct {
	// Lease is L: how long one renewal is good for.
	Lease time.Duration
	// Bound is what a grantor waits beyond L and its margin, for the
	// connections that a holder closes to be gone.
	Bound time.Duration
}

// margin is what a holder takes off its lease.
func (t Terms) margin() time.Duration { return t.Lease - drift.Use(t.Lease) }

// Interval is the time between two renewals.
func (t Terms) Interval() time.Duration { return t.Lease / 6 }

// Wait is how long a grantor waits before it calls a member expired.
func (t Terms) Wait() time.Duration { return drift.Keep(t.Lease, t.Bound) }

// Renewal asks for one more lease for an incarnation.
type Renewal struct {
	Node kmutex.Node `json:"node"`
	// Tag counts the renewals of one holder.
	Tag uint64 `json:"tag"`
}
