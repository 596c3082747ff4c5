package admin

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Lines is who waits and who holds slots at this gateway. The gateway implements
// it.
type Lines interface {
	// Find returns who is in a pool here with a request of a trace; some, if they
	// are many, and nobody for a trace that nobody has.
	Find(trace string) (pool string, found Entries)
	// Position returns the place in a pool's line, from 1, of who came at the given
	// time, over all gateways, and the wait to be expected; 0: not known.
	Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration)
	// Gateway returns the name of the gateway at which an entry is, or was. It
	// fails with ErrUnknown.
	Gateway(id string) (string, error)
	// Cancel takes who waits here out of the line. It fails with ErrUnknown, also
	// for who has a slot by now.
	Cancel(id string) error
}

// Entry is somebody in a pool: a request, or a ticket. Its keys are a public
// interface.
type Entry struct {
	// ID names it to DELETE /api/v1/line/ID. It is no secret, and not a ticket's
	// own.
	ID      string `json:"id"`
	Gateway string `json:"gateway"`
	// Position in the line over all gateways, from 1; absent for who holds a slot.
	Position int `json:"position,omitempty"`
	// Seconds is how long it has waited, or held its slot.
	Seconds float64 `json:"seconds"`
	// InLineSeconds is how long it has had its place in the line: as long as it
	// waits, but where clients are served in turn. Absent: it has none yet, as
	// another request of its client has.
	InLineSeconds float64 `json:"in_line_seconds,omitempty"`
	// Arrived is when it came, as its gateway's clock says.
	Arrived time.Time `json:"arrived"`
	// Client is the client's address.
	Client string `json:"client,omitempty"`
	// Method and Path of a request; the query is left out, it may hold secrets.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Trace  string `json:"trace,omitempty"`
	// Ticket tells that it is a ticket, and Note what its holder wrote on it.
	Ticket bool   `json:"ticket,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Line is the document at /api/v1/line: who is in a pool, over all gateways. Its
// keys are a public interface.
type Line struct {
	Pool string `json:"pool"`
	K    int    `json:"k"`
	// InFlight and Waiting count all, also those that are not listed.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// Missing are the gateways whose part is missing: they did not answer.
	Missing []string `json:"missing"`
	// Line has the first 1000 that wait, in their order, and Holders the 1000 that have held a slot for longest.
	Line    []Entry `json:"line"`
	Holders []Entry `json:"holders"`
}

// entriesShown bounds the listings of the API.
const entriesShown = 1000

// add puts more entries to e and keeps the first limit.
func (e *Entries) add(more Entries, limit int) {
	e.Waiting = longest(append(e.Waiting, more.Waiting...), limit)
	e.Holding = longest(append(e.Holding, more.Holding...), limit)
}

// longest sorts by time, the longest in line first. The times are differences, so clocks
// that are not set alike do no harm.
func longest(of []Entry, limit int) []Entry {
	slices.SortStableFunc(of, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.InLineSeconds, a.InLineSeconds), cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID))
	})
	return of[:min(limit, len(of))]
}

// number gives the waiting their positions.
func (e Entries) number() {
	for i := range e.Waiting {
		e.Waiting[i].Position = i + 1
	}
}
