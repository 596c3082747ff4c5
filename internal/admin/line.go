package admin

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Lines lists the requests that wait or hold slots at this gateway. The gateway
// implements it.
type Lines interface {
	// Find returns the requests of a trace at this gateway, and their pool; only some if there
	// are many.
	Find(trace string) (pool string, found Entries)
	// Position returns the place in a pool's line, from 1 and over all gateways, of an entry that
	// arrived at the given time, and its expected wait; 0: not known.
	Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration)
	// Gateway returns the name of the gateway at which an entry is, or was. It fails with
	// ErrUnknown for an unknown id.
	Gateway(id string) (string, error)
	// Cancel takes a waiting entry out of the line. It fails with ErrUnknown, also if
	// the entry has a slot by now.
	Cancel(id string) error
}

// Entry is a request or ticket of a pool. Its keys are a public interface.
type Entry struct {
	// ID is for DELETE /api/v1/line/ID. It is not secret, and not the ID of a ticket.
	ID      string `json:"id"`
	Gateway string `json:"gateway"`
	// Position in the line over all gateways, from 1; absent if it holds a slot.
	Position int `json:"position,omitempty"`
	// Seconds is how long it has waited, or held its slot.
	Seconds float64 `json:"seconds"`
	// InLineSeconds is how long it has had its place in the line: as long as it
	// waits, except where clients are served in turn. Absent: it has no place yet,
	// because another request of its client has one.
	InLineSeconds float64 `json:"in_line_seconds,omitempty"`
	// Arrived is the time of arrival by its gateway's clock.
	Arrived time.Time `json:"arrived"`
	// Client is the client's address.
	Client string `json:"client,omitempty"`
	// Method and Path of a request; the query is left out, it may hold secrets.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Trace  string `json:"trace,omitempty"`
	// Ticket tells that it is a ticket. Note is its holder's text.
	Ticket bool   `json:"ticket,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Line is the document at /api/v1/line: the requests and tickets of a pool, over all
// gateways. Its keys are a public interface.
type Line struct {
	Pool string `json:"pool"`
	K    int    `json:"k"`
	// InFlight and Waiting count all requests and tickets, also unlisted ones.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// Missing are the gateways that did not answer, so that their part is missing.
	Missing []string `json:"missing"`
	// Line has the first 1000 waiting entries, in their order, and Holders the 1000 entries that
	// have held a slot for longest.
	Line    []Entry `json:"line"`
	Holders []Entry `json:"holders"`
}

// entriesShown bounds the listings of the API.
const entriesShown = 1000

// add adds more entries to e and keeps the first limit.
func (e *Entries) add(more Entries, limit int) {
	e.Waiting = longest(append(e.Waiting, more.Waiting...), limit)
	e.Holding = longest(append(e.Holding, more.Holding...), limit)
}

// longest sorts by time, the longest in line first. The times are durations, so it does not matter if
// clocks differ.
func longest(of []Entry, limit int) []Entry {
	slices.SortStableFunc(of, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.InLineSeconds, a.InLineSeconds), cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID))
	})
	return of[:min(limit, len(of))]
}

// number gives the waiting entries their positions.
func (e Entries) number() {
	for i := range e.Waiting {
		e.Waiting[i].Position = i + 1
	}
}
