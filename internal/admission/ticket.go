package admission

import (
	"encoding/json"
	"errors"
	"time"
)

// Errors that concern a ticket, beside [Reason] and [EndedError].
var (
	// ErrUnknownPool: the cluster has no pool of this name.
	ErrUnknownPool = errors.New("kgate: there is no such pool")
	// ErrTicketEnded is what each EndedError wraps.
	ErrTicketEnded = errors.New("kgate: the ticket has ended")
	// ErrUnknownTicket: no gateway knows the ticket.
	ErrUnknownTicket = errors.New("kgate: there is no such ticket, or it ended long ago")
	// ErrElsewhere: the gateway that has the ticket does not answer now.
	ErrElsewhere = errors.New("kgate: the gateway that has the ticket does not answer; its successor soon will")
	// ErrTicketWaiting: the ticket has no slot yet.
	ErrTicketWaiting = errors.New("kgate: the ticket is still waiting")
	// ErrTTL: tickets of the pool do not live for as long as was asked for.
	ErrTTL = errors.New("kgate: the ttl is too long for the pool")
	// ErrTicketUsed: a request is or was in flight on the ticket's slot.
	ErrTicketUsed = errors.New("kgate: the ticket has been used")
)

// Ending says how a ticket ended.
type Ending string

// The endings.
const (
	EndReleased  Ending = "released"  // by its holder
	EndCancelled Ending = "cancelled" // by its holder, while it waited
	EndExpired   Ending = "expired"   // no sign of its holder within its time to live
	EndHoldMax   Ending = "hold-max"  // it had its slot for as long as its pool allows
	EndLost      Ending = "lost"      // with all gateways that knew the ticket
)

// EndedError says that a ticket has ended.
type EndedError struct{ How Ending } // empty: nobody knows

func (e *EndedError) Error() string {
	if e.How == "" {
		return ErrTicketEnded.Error()
	}
	return ErrTicketEnded.Error() + ": " + string(e.How)
}

// Unwrap returns ErrTicketEnded.
func (e *EndedError) Unwrap() error { return ErrTicketEnded }

// TicketState is the state of a ticket.
type TicketState string

// The states of a ticket.
const (
	TicketWaiting TicketState = "waiting" // in line
	TicketGranted TicketState = "granted" // holds a slot
)

// Ticket is a place in the line of a pool, and then a slot, that needs no connection
// and outlives the gateway that took it in.
type Ticket struct {
	// ID is a secret: it is all it takes to use the ticket.
	ID      string
	Pool    string
	Granted bool
	// TTL is how long the ticket lives after a sign of its holder.
	TTL time.Duration
	// Position in the line, from 1, and the expected wait; 0 if they are not known,
	// or when granted.
	Position int
	ETA      time.Duration
	// Fence of a granted ticket: pool/founded/epoch/serial.
	Fence string
	// Upstream is the URL of the upstream that a granted ticket's slot is for: see [UpstreamOf].
	Upstream string
	// Grant of a granted ticket. Between gateways its name is Entry.
	Grant GrantInfo `json:"Entry"`
	// Arrived is when the ticket was taken in. Place names it in listings of the line, and is no
	// secret.
	Arrived time.Time
	Place   string
	Note    string // of its taker
	// Left is how long the ticket lives without a further sign of its holder, in the sense of
	// package drift: the holder must stop a tenth before that.
	Left time.Duration
}

// State of the ticket.
func (t Ticket) State() TicketState {
	if t.Granted {
		return TicketGranted
	}
	return TicketWaiting
}

// MarshalJSON returns the document that the ticket's address answers with. Its keys
// are a public interface.
func (t Ticket) MarshalJSON() ([]byte, error) {
	eta := ""
	if wait := t.ETA.Round(time.Millisecond); wait > 0 {
		eta = wait.String()
	}
	return json.Marshal(struct {
		ID       string      `json:"id"`
		Pool     string      `json:"pool"`
		State    TicketState `json:"state"`
		Position int         `json:"position,omitempty"`
		ETA      string      `json:"eta,omitempty"`
		TTL      string      `json:"ttl"`
		Fence    string      `json:"fence,omitempty"`
		Upstream string      `json:"upstream,omitempty"`
		Expires  time.Time   `json:"expires"`
		Left     string      `json:"left"`
	}{
		ID: t.ID, Pool: t.Pool, State: t.State(), Position: t.Position, ETA: eta,
		TTL: t.TTL.String(), Fence: t.Fence, Upstream: t.Upstream, Expires: time.Now().Add(t.Left).UTC().Round(time.Millisecond),
		Left: max(0, t.Left).Truncate(time.Millisecond).String(),
	})
}
