package gateway

import "time"

// serviceRate estimates how fast waiting requests of this gateway are admitted.
type serviceRate struct {
	last  time.Time     // the last admission, or when the first one in line came
	every time.Duration // moving mean of the time between admissions while some wait
}

// begins notes that somebody waits from now on, after nobody did.
func (r *serviceRate) begins(now time.Time) { r.last = now }

// admitted notes an admission at now; busy tells whether others go on waiting.
func (r *serviceRate) admitted(now time.Time, busy bool) {
	if !r.last.IsZero() {
		r.every = movingMean(r.every, now.Sub(r.last))
	}
	if r.last = now; !busy {
		r.last = time.Time{}
	}
}

// wait estimates the wait of who comes now and finds so many in line here: a turn
// for each of them and one more. A line that stands still has long had its turn:
// it may stand for as long again.
func (r *serviceRate) wait(now time.Time, waiting int) time.Duration {
	turns := time.Duration(waiting+1) * r.every
	if waiting == 0 || r.last.IsZero() {
		return turns
	}
	return turns + max(0, now.Sub(r.last)-r.every)
}

// movingMean takes a sample into a mean; one of 0 has none.
func movingMean(mean, sample time.Duration) time.Duration {
	const weight = 8 // as in TCP's estimate of the round trip
	if mean == 0 {
		return sample
	}
	return mean + (sample-mean)/weight
}
