package admin

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Event is something that has happened to the cluster, as the gateway that answers
// has seen it.
type Event struct {
	At time.Time `json:"at"`
	// Pool that it happened to; empty: the cluster.
	Pool string `json:"pool,omitempty"`
	// Text says what, in plain words.
	Text string `json:"text"`
}

// happened is an event in a list.
type happened struct{ Ago, Text string }

// eventsListed bounds the list.
const eventsListed = 8

// newestEvents lists the latest events, the newest first. The page says how long ago they
// were: clocks of browsers and gateways differ.
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

// marksOf places the events of a pool, and those of the cluster, on a curve.
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
