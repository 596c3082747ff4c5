package pool

import "time"

// How often a pool asks for a new epoch: at once, and then after pauses that
// double, so that a defect that no epoch mends does not begin epoch after epoch.
const (
	repairFirst   = time.Second
	repairLongest = time.Minute
)

// repair is the wish that the present epoch ends.
type repair struct {
	wanted bool
	due    time.Duration // not before then
	pause  time.Duration
}

// mend asks for a new epoch until there is one.
func (p *Pool) mend(now time.Duration) {
	r := &p.repair
	if r.wanted {
		return
	}
	if now-r.due > repairLongest { // it went well for a while
		r.pause = 0
	}
	r.wanted, r.due = true, max(r.due, now)
}

// fire asks, when it is due.
func (r *repair) fire(now time.Duration, p *Pool) {
	if !r.wanted || now < r.due {
		return
	}
	p.fx.ChangeEpoch, p.fx.Spread, p.fx.Whole = p.view.Epoch, false, false
	r.pause = min(max(2*r.pause, repairFirst), repairLongest)
	r.due = now + r.pause
}

func (r *repair) next() time.Duration {
	if !r.wanted {
		return 0
	}
	return r.due
}
