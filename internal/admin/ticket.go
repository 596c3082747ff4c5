package admin

import (
	"context"
	"errors"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Errors that [Tickets] and [Control] answer with; each is one HTTP status.
// The text of the error that wraps them is shown to the client.
var (
	// ErrInvalid: a value is not valid (400).
	ErrInvalid = errors.New("invalid")
	// ErrUnknown: no such ticket, pool or gateway (404).
	ErrUnknown = errors.New("unknown")
	// ErrConflict: the state is not what the caller expects (409).
	ErrConflict = errors.New("conflict")
	// ErrTooMany: a limit on tickets is reached (429).
	ErrTooMany = errors.New("too many")
	// ErrUnavailable: this gateway cannot do it now, another one might (503).
	ErrUnavailable = errors.New("unavailable")
)

const defaultTTL = 30 * time.Second

// Tickets are the slots that are held without a connection. The gateway
// implements it; any gateway answers for any ticket.
//
// Methods fail with an [admission.EndedError] for a ticket that has ended, as far as
// that is remembered, and with ErrUnknownTicket for an id that no gateway can know.
// While the gateway that has the ticket cannot be reached, or is not known here yet,
// they fail with ErrElsewhere, and once this gateway leaves with
// [admission.Draining] or [admission.Isolated], those under way too: the client goes
// on at another one.
type Tickets interface {
	// RequestTicket puts a ticket in line. It fails with ErrUnknownPool, and with an
	// [admission.Reason]. When it has returned, the ticket outlives its gateway.
	RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error)
	// TestTicket returns the ticket as soon as it is not in the state granted, or
	// after wait. While the ticket waits in line, the beginning and the end of
	// TestTicket are signs of its holder, and one under way keeps it alive.
	TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error)
	// RenewTicket is a sign of the holder, whatever the state.
	RenewTicket(ctx context.Context, id string) (admission.Ticket, error)
	// EndTicket gives the slot back, or leaves the line. It fails with
	// [admission.ErrTicketUsed] while a request uses the slot.
	EndTicket(ctx context.Context, id string) error
}
