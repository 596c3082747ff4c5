package leader

import "time"

// Flap backoff: how long a gateway is kept out whose links did not hold, and the
// longest that this becomes when it happens again soon.
const (
	shortBackoff = time.Second
	longBackoff  = time.Minute
	maxFlaps     = 10_000
)

// flap is what the rules remember of a gateway whose links did not hold.
type flap struct {
	wait, until time.Duration
}

// flapped notes that a gateway was suspended for what its links do. One whose reports
// do not arrive stays out until its lease is over: if it came back before, an epoch
// would begin to give back what it owes, and wait for its report.
func (r *Rules) flapped(name string, why Reason, now time.Duration) {
	last, again := r.flaps[name]
	wait := shortBackoff
	if again && now-last.until < 4*last.wait {
		wait = min(2*last.wait, longBackoff)
	}
	if why == Missing || why == Unheard {
		wait = max(wait, r.terms.Wait()+2*Interval)
	}
	if len(r.flaps) >= maxFlaps {
		clear(r.flaps)
	}
	r.flaps[name] = flap{wait: wait, until: now + wait}
}

// Waits reports that a gateway's flap backoff is not over.
func (r *Rules) Waits(name string, now time.Duration) bool { return now < r.flaps[name].until }
