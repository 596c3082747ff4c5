package proxy

import (
	"sync"
	"time"
)

// sleeper has to be called at a time.
type sleeper interface{ due() }

// alarm calls the sleeper that set it. Each request with a limit sets one, and nearly all end
// long before: so the runtime's timer stays as it is when an alarm is given back, and whoever sets
// the alarm next for a later time only notes that. When the timer fires, it finds out.
type alarm struct {
	from *alarms

	mu    sync.Mutex
	user  sleeper // nil: nobody's
	at    time.Time
	timer *time.Timer // nil: it was never set
	fires time.Time   // zero: it does not
}

// alarms are those that nobody uses. Its zero value has none.
type alarms struct{ free sync.Pool }

// set has user called after a while.
func (a *alarms) set(user sleeper, in time.Duration) *alarm {
	free, _ := a.free.Get().(*alarm)
	if free == nil {
		free = &alarm{from: a}
	}
	free.set(user, in)
	return free
}

func (a *alarm) set(user sleeper, in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.user, a.at = user, time.Now().Add(in)
	if a.fires.IsZero() || a.at.Before(a.fires) {
		a.armLocked(in)
	}
}

func (a *alarm) armLocked(in time.Duration) {
	if a.fires = a.at; a.timer == nil {
		a.timer = time.AfterFunc(in, a.fire)
		return
	}
	a.timer.Reset(in)
}

// giveBack ends its use. A call may be under way.
func (a *alarm) giveBack() {
	a.mu.Lock()
	a.user = nil
	a.mu.Unlock()
	a.from.free.Put(a)
}

// fire is the timer's function.
func (a *alarm) fire() {
	a.mu.Lock()
	user := a.user
	a.fires = time.Time{}
	if user != nil {
		if left := time.Until(a.at); left > 0 {
			a.armLocked(left)
			user = nil
		}
	}
	a.mu.Unlock()
	if user != nil {
		user.due()
	}
}
