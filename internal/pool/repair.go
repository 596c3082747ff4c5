package pool

import (
	"fmt"
	"time"
)

// A pool asks for a new epoch at once, and then after pauses that double: a defect that
// no epoch repairs must not begin epoch after epoch.
const (
	repairFirst   = time.Second
	repairLongest = time.Minute
)

// repair says whether the present epoch has to end, and when to ask for that.
type repair struct {
	wanted bool
	due    time.Duration // not before then
	pause  time.Duration
}

// refuse gives up the view's epoch, which cannot begin here, and asks for another one.
func (p *Pool) refuse(now time.Duration, err error) {
	p.state = Refused
	p.fx.Err = fmt.Errorf("epoch %d cannot begin: %w", p.view.Epoch, err)
	p.mend(now)
}

// mend asks for a new epoch until one begins.
func (p *Pool) mend(now time.Duration) {
	r := &p.repair
	if r.wanted {
		return
	}
	if now-r.due > repairLongest { // all was well for a while
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
