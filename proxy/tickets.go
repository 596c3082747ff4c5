package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

// Tickets are places in line, and slots, that outlive a request. It must be safe
// for concurrent use.
type Tickets interface {
	// RequestTicket takes a place in the pool's line, whatever req.Wait says. The
	// ticket ends when ttl passes without a sign of its holder; the note is for
	// people. The error is an *admission.Refusal if the gateway gives out no tickets
	// now.
	RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error)
	// TestTicket returns the ticket as soon as it is not in the state granted, or
	// after wait.
	TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error)
	// EndTicket ends a ticket. If it fails, the ticket expires.
	EndTicket(ctx context.Context, id string) error
	// RedeemTicket turns a granted ticket of the pool into the slot of a request,
	// without waiting; the slot's Release ends the ticket. The holder is told if the slot is
	// lost before that. The error wraps
	// ErrUnknownTicket, ErrTicketWaiting, ErrTicketUsed or ErrElsewhere of package
	// admission, or is an *EndedError or a *Refusal of it.
	RedeemTicket(ctx context.Context, pool, id string, holder admission.Holder) (Slot, error)
}

const (
	ticketsPath  = "/.kgate/tickets"
	ticketHeader = "Kgate-Ticket"
)

// MaxTicketTTL is the longest time to live of a ticket that is taken on the client
// address, where anybody may: for so long a slot may be held and not used. A ticket in
// place of an answer has it. Retry-After is half of that, or less.
const MaxTicketTTL = time.Minute

// ticketError is why a ticket cannot be used, as its client is told.
type ticketError struct {
	status int
	detail string
}

func (e *ticketError) Error() string { return e.detail }

var (
	errNoTickets  = &ticketError{http.StatusBadRequest, "this gateway takes no tickets: send the request without " + ticketHeader}
	errTwoTickets = &ticketError{http.StatusBadRequest, "write one ticket in " + ticketHeader}
	errUnknown    = &ticketError{http.StatusConflict, "this pool has no such ticket: it was released, has expired or never was; ask for a new one"}
	errWaiting    = &ticketError{http.StatusConflict, "the ticket's turn has not come: ask for its state below " + ticketsPath + "/ and send the request again once it is granted"}
	errInUse      = &ticketError{http.StatusConflict, "another request is in flight on this ticket: one ticket is good for one request"}
)

// isTicketPath reports whether path is the ticket API's, which no route gets.
func isTicketPath(path string) bool {
	rest, ok := cutPathPrefix(path, ticketsPath)
	return ok && (rest == "" || isSlash(rest[0]) || rest[0] == ';')
}

// redeem returns the slot of the ticket that the request brings.
func (v *visit) redeem(ctx context.Context, pool string, ids []string) (Slot, error) {
	tickets := v.snapshot.cfg.Tickets
	switch {
	case tickets == nil:
		return nil, errNoTickets
	case len(ids) != 1 || ids[0] == "":
		return nil, errTwoTickets
	}
	slot, err := tickets.RedeemTicket(ctx, pool, ids[0], &v.hold)
	var ended *admission.EndedError
	switch {
	case errors.Is(err, admission.ErrUnknownTicket), errors.As(err, &ended):
		return nil, errUnknown
	case errors.Is(err, admission.ErrTicketWaiting):
		return nil, errWaiting
	case errors.Is(err, admission.ErrTicketUsed):
		return nil, errInUse
	default:
		return slot, err
	}
}

// errAnswered is not a failure: the request has been answered with a ticket, or with the
// page of a browser that waits.
var errAnswered = errors.New("answered with a place in line")

// cancelTicket ends a ticket whose holder never learns of it.
func cancelTicket(tickets Tickets, id string) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = tickets.EndTicket(ctx, id) // else it expires
}

// ticketRequest returns what a client of the pool asks for with a ticket: a place of its own,
// and a slot for as long as a request may have one.
func (v *visit) ticketRequest(r *http1.Request, pool *Pool) admission.Request {
	return admission.Request{Pool: pool.Name, Client: v.clientKey(r, pool), Counted: true, HoldMax: pool.HoldMax}
}
