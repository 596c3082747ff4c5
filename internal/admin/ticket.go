package admin

import (
	"context"
	"errors"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Errors of [Tickets] and [Control]; each is one HTTP status. The client is shown the text of the
// error that wraps them.
var (
	// ErrInvalid: a value is not valid (400).
	ErrInvalid = errors.New("invalid")
	// ErrUnknown: no such ticket, pool or gateway (404).
	ErrUnknown = errors.New("unknown")
	// ErrConflict: the state is not what the caller expects (409).
	ErrConflict = errors.New("conflict")
	// ErrTooMany: a limit on tickets is reached (429).
	ErrTooMany = errors.New("too many")
	// ErrUnavailable: this gateway cannot do it now, another gateway might (503).
	ErrUnavailable = errors.New("unavailable")
)

const defaultTTL = 30 * time.Second

// Tickets are slots that are held without a connection. The gateway implements it; any gateway
// answers for any ticket.
//
// Methods fail with an [admission.EndedError] for a ticket whose end is remembered, and with
// ErrUnknownTicket for an id that no gateway can know. While the ticket's gateway cannot be reached,
// or is not known here yet, they fail with ErrElsewhere. Once this gateway leaves, they fail with
// [admission.Draining] or [admission.Isolated], calls under way too: the client goes on at another
// gateway.
type Tickets interface {
	// RequestTicket puts a ticket in line. It fails with ErrUnknownPool or with an
	// [admission.Reason]. Once it has returned, the ticket outlives its gateway.
	RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error)
	// TestTicket returns the ticket as soon as its Granted differs from granted, or after wait.
	// While the ticket waits in line, the beginning and the end of TestTicket are signs of its
	// holder, and a call under way keeps it alive.
	TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error)
	// RenewTicket is a sign of the holder, whatever the state.
	RenewTicket(ctx context.Context, id string) (admission.Ticket, error)
	// EndTicket gives the slot back, or leaves the line. It fails with
	// [admission.ErrTicketUsed] while a request uses the slot.
	EndTicket(ctx context.Context, id string) error
}
