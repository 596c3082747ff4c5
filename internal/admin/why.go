package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// why is the document at /api/v1/why: why a request or ticket waits. Its keys are a public
// interface.
type why struct {
	Pool string `json:"pool"`
	// State is waiting, or granted if it holds a slot.
	State admission.TicketState `json:"state"`
	// Summary says all of the document in sentences.
	Summary string `json:"summary"`
	// Entry is the request or ticket asked about.
	Entry Entry `json:"entry"`
	// Ahead is how many entries come before it, over all gateways.
	Ahead int `json:"ahead"`
	// ExpectedSeconds is an estimate of the wait left; absent: nothing to go by.
	ExpectedSeconds float64 `json:"expected_seconds,omitempty"`
	K               int     `json:"k"`
	InFlight        int     `json:"in_flight"`
	// Withheld tokens may still be in use at gateways that are lost.
	Withheld int `json:"withheld"`
	// Missing are the gateways that did not answer, so that their part is missing.
	Missing []string `json:"missing"`
	// Next are the first entries in the line, Holders the entries that have held a slot for
	// longest; at most 20 of each.
	Next    []Entry `json:"next"`
	Holders []Entry `json:"holders"`
}

// whyShown bounds the lists of a Why.
const whyShown = 20

// why answers with the reason why a ticket, or a request by its trace, waits.
func (h *handler) why(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ticket, trace := q.Get("ticket"), strings.ToLower(q.Get("trace"))
	var (
		out why
		err error
	)
	switch {
	case (ticket == "") == (trace == ""):
		err = fmt.Errorf("%w: ask with ticket=ID or with trace=ID", ErrInvalid)
	case ticket != "":
		out, err = h.ofTicket(r.Context(), ticket)
	default:
		out, err = h.ofTrace(r.Context(), trace)
	}
	if err == nil {
		err = h.explain(r.Context(), &out)
	}
	respond(w, r, out, err, h.Log)
}

func (h *handler) ofTicket(ctx context.Context, id string) (why, error) {
	if h.Tickets == nil || !isTicketID(id) {
		return why{}, admission.ErrUnknownTicket
	}
	t, err := h.Tickets.TestTicket(ctx, id, false, 0)
	if err != nil {
		return why{}, err
	}
	at, err := h.Lines.Gateway(t.Place)
	if err != nil {
		return why{}, err
	}
	e := Entry{ID: t.Place, Gateway: at, Position: t.Position, Seconds: since(t.Arrived), Arrived: t.Arrived.UTC(), Ticket: true}
	return why{Pool: t.Pool, State: t.State(), Entry: e, Ahead: max(0, t.Position-1), ExpectedSeconds: t.ETA.Seconds()}, nil
}

func since(t time.Time) float64 { return max(0, time.Since(t).Seconds()) }

func (h *handler) ofTrace(ctx context.Context, trace string) (why, error) {
	pool, found := h.fleet.find(ctx, trace)
	switch {
	case len(found.Waiting) > 0:
		e := found.Waiting[0]
		position, wait := h.Lines.Position(ctx, pool, e.Arrived)
		e.Position = position
		return why{Pool: pool, State: admission.TicketWaiting, Entry: e, Ahead: max(0, position-1), ExpectedSeconds: wait.Seconds()}, nil
	case len(found.Holding) > 0:
		return why{Pool: pool, State: admission.TicketGranted, Entry: found.Holding[0]}, nil
	default:
		return why{}, fmt.Errorf("%w: no request of trace %.64q waits or has a slot", ErrUnknown, trace)
	}
}

// explain adds the facts about the pool.
func (h *handler) explain(ctx context.Context, y *why) error {
	line, pool, err := h.fleet.line(ctx, y.Pool)
	if err != nil {
		return err
	}
	y.K, y.InFlight, y.Withheld, y.Missing = line.K, line.InFlight, pool.Withheld, line.Missing
	y.Holders = line.Holders[:min(whyShown, len(line.Holders))]
	y.Next = line.Line[:min(whyShown, len(line.Line))]
	y.Summary = y.sum()
	return nil
}

// sum writes the summary.
func (y *why) sum() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	if y.State == admission.TicketGranted {
		say("It holds one of the %d slots of pool %s, at %s.", y.K, y.Pool, y.Entry.Gateway)
		return b.String()
	}
	say("It has waited for %s in pool %s at %s; %d are ahead of it. %d of %d slots are in use",
		Seconds(y.Entry.Seconds), y.Pool, y.Entry.Gateway, y.Ahead, y.InFlight, y.K)
	if len(y.Holders) > 0 {
		longest := y.Holders[0]
		say(", the longest for %s by %s at %s", Seconds(longest.Seconds), longest.Who(), longest.Gateway)
	}
	say(".")
	if y.ExpectedSeconds > 0 {
		say(" Expected wait: about %s more.", Seconds(y.ExpectedSeconds))
	}
	if y.Withheld > 0 {
		say(" %d slots may still be in use at a lost gateway; they come back when its lease has run out.", y.Withheld)
	}
	if len(y.Missing) > 0 {
		say(" %s did not answer, so its part is missing.", strings.Join(y.Missing, ", "))
	}
	return b.String()
}
