package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Tickets are places in line, and slots, that outlive a request. It must be safe
// for concurrent use.
type Tickets interface {
	// Request takes a place in the pool's line, with no regard to req.Wait. The
	// ticket ends when ttl passes without a sign of its holder. The error is a
	// *admission.Refusal if the gateway gives out no tickets now.
	Request(ctx context.Context, req admission.Request, ttl time.Duration) (Ticket, error)
	// Await returns the ticket when it is granted, or after wait.
	Await(ctx context.Context, id string, wait time.Duration) (Ticket, error)
	// Cancel ends a ticket that nobody has been told of. It may take a while, and
	// need not succeed: the ticket then expires.
	Cancel(id string)
	// Redeem turns a granted ticket of the pool into the slot of a request,
	// without waiting; the slot's Release ends the ticket. The error wraps
	// ErrTicketUnknown, ErrTicketWaiting or ErrTicketInUse, or is a *Refusal.
	Redeem(ctx context.Context, pool, id string) (Slot, error)
}

// Ticket as a client gets it.
type Ticket struct {
	// ID is a secret: whoever has it has the ticket.
	ID string
	// Granted: it has its slot.
	Granted bool
	// RetryAfter is when it may be worth while to ask for it.
	RetryAfter time.Duration
	// Body is the ticket as JSON, the same that its address answers with.
	Body []byte
}

// Why a ticket cannot be redeemed.
var (
	// ErrTicketUnknown: there is no such ticket of this pool, or no more.
	ErrTicketUnknown = errors.New("proxy: unknown ticket")
	// ErrTicketWaiting: its turn has not come.
	ErrTicketWaiting = errors.New("proxy: ticket is still waiting")
	// ErrTicketInUse: a request is in flight on it.
	ErrTicketInUse = errors.New("proxy: ticket is in use")
)

const (
	ticketsPath  = "/.kgate/tickets"
	ticketHeader = "Kgate-Ticket"
)

// MaxTicketTTL is the longest time to live of a ticket that is taken on the client
// address, where anybody may: for so long a slot is held for nobody. A ticket in
// place of an answer has it. Its client is told to come back in half of that, or earlier.
const MaxTicketTTL = time.Minute

// ticketError is what a client gets to know about its ticket.
type ticketError struct {
	status int
	detail string
}

// Error implements error.
func (e *ticketError) Error() string { return "proxy: " + e.detail }

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

// serveTickets passes the ticket API on.
func (ex *exchange) serveTickets(r *http.Request) {
	if ex.snapshot.cfg.TicketHandler == nil {
		writeProblem(ex, r, problem{Status: http.StatusNotFound, Detail: "this gateway has no tickets"})
		return
	}
	ex.asks = r
	ex.readOwnBody(r)
	ex.snapshot.cfg.TicketHandler.ServeHTTP(ex, r)
}

// redeem returns the slot of the ticket that the request brings.
func (s *snapshot) redeem(r *http.Request, pool string, ids []string) (Slot, error) {
	switch {
	case s.cfg.Tickets == nil:
		return nil, errNoTickets
	case len(ids) != 1 || ids[0] == "":
		return nil, errTwoTickets
	}
	slot, err := s.cfg.Tickets.Redeem(r.Context(), pool, ids[0])
	switch {
	case errors.Is(err, ErrTicketUnknown):
		return nil, errUnknown
	case errors.Is(err, ErrTicketWaiting):
		return nil, errWaiting
	case errors.Is(err, ErrTicketInUse):
		return nil, errInUse
	default:
		return slot, err
	}
}

// errTicketGiven is no failure: the request has been answered with a ticket.
var errTicketGiven = errors.New("proxy: answered with a ticket")

// admitOrTicket lets a request in that would rather have a ticket than wait: with
// the slot of its ticket if that is granted within the wait that it prefers, at once
// if it names none. Otherwise it is answered with the ticket, which keeps its place.
func (ex *exchange) admitOrTicket(r *http.Request, pool *Pool) (Slot, error) {
	tickets := ex.snapshot.cfg.Tickets
	ticket, err := tickets.Request(r.Context(), ex.snapshot.ticketRequest(r, pool), MaxTicketTTL)
	if err != nil {
		return nil, err
	}
	if seconds, ok := preferredWait(r.Header); ok && !ticket.Granted {
		var wait time.Duration
		wait, ex.prefer = time.Duration(seconds)*time.Second, seconds
		if pool.QueueTimeout >= 0 && wait > pool.QueueTimeout {
			wait, ex.prefer = pool.QueueTimeout, -1
		}
		later, err := tickets.Await(r.Context(), ticket.ID, wait)
		switch {
		case r.Context().Err() != nil:
			tickets.Cancel(ticket.ID)
			return nil, r.Context().Err()
		case err == nil: // else the gateway that has it does not answer now, and the client may ask again
			ticket = later
		}
	}
	if !ticket.Granted {
		ex.writeTicket(ticket)
		return nil, errTicketGiven
	}
	slot, err := ex.snapshot.redeem(r, pool.Name, []string{ticket.ID})
	if err != nil {
		tickets.Cancel(ticket.ID)
	}
	return slot, err
}

// writeTicket answers with a ticket.
func (ex *exchange) writeTicket(ticket Ticket) {
	header := ex.Header()
	header.Set("Location", ticketsPath+"/"+url.PathEscape(ticket.ID))
	header.Set("Retry-After", strconv.Itoa(retryAfterSeconds(min(ticket.RetryAfter, MaxTicketTTL/2))))
	header.Set("Preference-Applied", ticketPreference)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(ticket.Body)))
	ex.WriteHeader(http.StatusAccepted)
	_, _ = ex.Write(ticket.Body) // the client may be gone; its ticket then expires
}

// ticketRequest is what a client of the pool asks for with a ticket: a place of its own,
// and a slot for no longer than a request may have one.
func (s *snapshot) ticketRequest(r *http.Request, pool *Pool) admission.Request {
	return admission.Request{Pool: pool.Name, Client: s.clientKey(r, pool), HoldMax: pool.HoldMax}
}

// TicketRequest returns what is asked for with a ticket of the pool. If ctx is that of a
// request which a [Config].TicketHandler serves, that is what its client may have;
// otherwise nobody in particular asks, and the hold has no bound.
func TicketRequest(ctx context.Context, pool string) admission.Request {
	if ex := exchangeIn(ctx); ex != nil && ex.asks != nil {
		if p := ex.snapshot.pool(pool); p != nil {
			return ex.snapshot.ticketRequest(ex.asks, p)
		}
	}
	return admission.Request{Pool: pool}
}
