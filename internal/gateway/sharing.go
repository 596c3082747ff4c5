package gateway

import (
	"math"
	"time"
)

// Operators want to see what each client has of the slots, in the order fair.

const (
	// recentFor is about how far back what is shown of clients reaches: older time counts less and less.
	recentFor = 30 * time.Second
	// clientsShown is how many clients a gateway reports.
	clientsShown = 32
)

// recent is what a client has had of late.
type recent struct {
	since, at time.Time
	held      float64 // seconds of slots
	admitted  float64
	waited    float64 // seconds, of those
}

// to lets all that was before now count less.
func (r *recent) to(now time.Time) {
	if r.at.IsZero() {
		r.since = now
	}
	less := remains(r.at, now)
	r.held, r.admitted, r.waited, r.at = r.held*less, r.admitted*less, r.waited*less, now
}

// remains returns how much of what was at one time counts at another.
func remains(then, now time.Time) float64 {
	return math.Exp(-now.Sub(then).Seconds() / recentFor.Seconds())
}

func (r *recent) hold(now time.Time, held time.Duration) {
	r.to(now)
	r.held += held.Seconds()
}

func (r *recent) got(now time.Time, wait time.Duration) {
	r.to(now)
	r.admitted++
	r.waited += wait.Seconds()
}

// slots returns the mean number of slots held of late, from a second after the client came.
func (r *recent) slots(now time.Time) float64 {
	since := min(r.since.Sub(now), -time.Second)
	return r.held / (recentFor.Seconds() * (1 - remains(now.Add(since), now)))
}

// over reports that nothing of it is worth showing any more.
func (r *recent) over(now time.Time) bool { return now.Sub(r.at) > 2*recentFor }

// Sharing is who shares a pool's slots at a gateway, in the order fair.
type Sharing struct {
	// Present counts the clients that wait or hold slots.
	Present int
	// Most are those that have had most of late, that first.
	Most []ClientStatus
}

// ClientStatus is a client, as one gateway sees it.
type ClientStatus struct {
	Key    string
	Weight float64
	// Slots is the mean number of slots that it has had of late.
	Slots float64
	// InUse and Waiting count its requests.
	InUse, Waiting int
	// Admitted counts, about, those that were admitted of late, after MeanWait. Oldest is how
	// long the oldest of those that wait has waited.
	Admitted         float64
	MeanWait, Oldest time.Duration
}
