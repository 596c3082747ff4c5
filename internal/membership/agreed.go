package membership

import "github.com/kgate/kgate/internal/membership/views"

// What the gateways agree on is in package views.
type (
	// View is what the gateways have agreed on.
	View = views.View
	// Member is one incarnation of a gateway.
	Member = views.Member
	// Lost is a member that is gone.
	Lost = views.Lost
	// Pool is one critical section with K tokens.
	Pool = views.Pool
	// Class is those of a pool's tokens that stand for places at one upstream.
	Class = views.Class
	// SetServers says which servers an upstream's name has.
	SetServers = views.SetServers
	// Rate is in bytes per second.
	Rate = views.Rate
)

const (
	// StatusAlive is a member that takes part.
	StatusAlive = views.StatusAlive
	// Stopped is the Reason of a member that left, with nothing in flight.
	Stopped = views.Stopped
)

// Errors of commands.
var (
	ErrCommand  = views.ErrCommand
	ErrConflict = views.ErrConflict
)
