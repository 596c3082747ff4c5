package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors that [Tickets] and [Control] answer with; each is one HTTP status.
// What they are wrapped in is shown to the client.
var (
	// ErrInvalid: a value that cannot be (400).
	ErrInvalid = errors.New("admin: invalid")
	// ErrUnknown: no such ticket, pool or gateway (404).
	ErrUnknown = errors.New("admin: unknown")
	// ErrConflict: what the caller takes for granted is no longer so (409).
	ErrConflict = errors.New("admin: conflict")
	// ErrTooMany: as many tickets as there may be (429).
	ErrTooMany = errors.New("admin: too many")
	// ErrUnavailable: this gateway cannot do it now, another one might (503).
	ErrUnavailable = errors.New("admin: unavailable")
)

// TicketState is where a ticket stands.
type TicketState string

// The states of a ticket.
const (
	TicketWaiting TicketState = "waiting" // in line
	TicketGranted TicketState = "granted" // holds a slot
)

// Ticket is a place in the line of a pool, and then a slot, that lives without
// a connection: for TTL after its holder's last sign.
type Ticket struct {
	// ID is the secret that makes its bearer the holder.
	ID    string
	Pool  string
	State TicketState
	TTL   time.Duration
	// Position counts the tickets that come before this one, and itself; ETA is
	// an estimate of the wait left. Both are 0 where they are not known, or
	// granted.
	Position int
	ETA      time.Duration
	// Fence of a granted ticket: <pool>/<founded>/<epoch>/<serial>.
	Fence string
	// Arrived is when it was taken in; Place names it in the line, and is no secret.
	Arrived time.Time
	Place   string
	// Expires is when it ends unless the holder gives a sign. Its monotonic clock
	// reading counts.
	Expires time.Time
}

// TicketRequest asks for a ticket.
type TicketRequest struct {
	Pool string
	TTL  time.Duration
	// Note says who asks, for people.
	Note string
}

// Bounds of a [TicketRequest].
const (
	MinTTL     = time.Second
	MaxTTL     = 10 * time.Minute
	DefaultTTL = 30 * time.Second
	MaxNote    = 256 // bytes
)

// Tickets are the slots that are held without a connection. The gateway
// implements it; any gateway answers for any ticket.
//
// Methods fail with a [GoneError] for a ticket that has ended, as far as that
// is remembered, and with ErrUnknown for an id that no gateway can know. While
// the gateway that has the ticket cannot be reached, or is not known here yet,
// and once this gateway leaves, they fail with ErrUnavailable, those under way
// too: the client goes on at another one.
type Tickets interface {
	// Request puts a ticket in line. It fails with ErrUnknown for the pool, and
	// with ErrTooMany. When it has returned, the ticket outlives its gateway.
	Request(ctx context.Context, q TicketRequest) (Ticket, error)
	// Test returns the ticket as soon as it is in another state than while, or
	// after wait. While the ticket waits, the beginning and the end of Test are
	// signs of its holder, and a Test under way keeps it alive.
	Test(ctx context.Context, id string, while TicketState, wait time.Duration) (Ticket, error)
	// Renew is a sign of the holder, whatever the state.
	Renew(ctx context.Context, id string) (Ticket, error)
	// End gives the slot back, or leaves the line.
	End(ctx context.Context, id string) error
}

// Reason why a ticket has ended.
type Reason string

// The reasons.
const (
	ReasonReleased  Reason = "released"  // by its holder
	ReasonCancelled Reason = "cancelled" // by its holder, while it waited
	ReasonExpired   Reason = "expired"   // no sign of its holder within its TTL
	ReasonHoldMax   Reason = "hold-max"  // it has had its slot for as long as its pool allows
	ReasonLost      Reason = "lost"      // with all gateways that knew of it
)

// GoneError says that a ticket has ended (410).
type GoneError struct{ Reason Reason }

// Error implements error.
func (e *GoneError) Error() string { return fmt.Sprintf("admin: the ticket has ended: %s", e.Reason) }

// MarshalJSON shows the ticket as its address does.
func (t Ticket) MarshalJSON() ([]byte, error) { return json.Marshal(document(t)) }
