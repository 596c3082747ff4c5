package admin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Event is something that has happened to the cluster.
type Event struct {
	At time.Time `json:"at"`
	// Pool that it happened to; empty: the cluster.
	Pool string `json:"pool,omitempty"`
	// Text says what happened.
	Text string `json:"text"`
}

// sameWithin is how far apart gateways may note the same event.
const sameWithin = 10 * time.Second

// mergeEvents adds events of other gateways that this gateway lacks: it may have been started or cut
// off since. Every gateway notes the same events in the same words.
func mergeEvents(own []Event, all map[string]Report) []Event {
	merged := slices.Clone(own)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		known := len(merged) // one gateway can note the same twice
		for _, e := range all[name].Status.Events {
			if !slices.ContainsFunc(merged[:known], func(m Event) bool {
				return m.Pool == e.Pool && m.Text == e.Text && m.At.Sub(e.At).Abs() < sameWithin
			}) {
				merged = append(merged, e)
			}
		}
	}
	slices.SortStableFunc(merged, func(a, b Event) int { return a.At.Compare(b.At) })
	return merged
}

type happened struct{ Ago, Text string }

// eventsListed bounds the list.
const eventsListed = 8

// newestEvents lists the latest events, the newest first. The page shows their age instead of the
// time, because clocks of browsers and gateways differ.
func newestEvents(events []Event, now time.Time) []happened {
	var out []happened
	for _, e := range slices.Backward(events) {
		age := now.Sub(e.At)
		if len(out) == eventsListed || age > pastLength {
			break
		}
		ago := "just now"
		if minutes := int(age.Minutes()); minutes > 0 {
			ago = fmt.Sprintf("%d min ago", minutes)
		}
		out = append(out, happened{ago, e.Text})
	}
	return out
}

// mark is an event on a pool's curve.
type mark struct {
	X    float64
	Text string
}

const pastLength = PastStepSeconds * PastValues * time.Second

// marksOf places the events of a pool and of the cluster on a curve.
func marksOf(events []Event, pool string, now time.Time) []mark {
	var out []mark
	for _, e := range events {
		age := now.Sub(e.At)
		if e.Pool != "" && e.Pool != pool || age > pastLength {
			continue
		}
		x := sparkWidth * (1 - max(0, age).Seconds()/pastLength.Seconds())
		out = append(out, mark{math.Round(x), e.Text})
	}
	return out
}
