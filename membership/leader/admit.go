package leader

import (
	"slices"
	"time"
)

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

// flapped notes that a gateway was suspended for what its links do.
func (r *Rules) flapped(name string, now time.Duration) {
	last, again := r.flaps[name]
	wait := shortBackoff
	if again && now-last.until < 4*last.wait {
		wait = min(2*last.wait, longBackoff)
	}
	if len(r.flaps) >= maxFlaps {
		clear(r.flaps)
	}
	r.flaps[name] = flap{wait: wait, until: now + wait}
}

// Waits reports that a gateway's flap backoff is not over.
func (r *Rules) Waits(name string, now time.Duration) bool { return now < r.flaps[name].until }

// LetIn judges a gateway that wants to come in and does not reach those that it
// names. It returns a member for whose sake it has to stay out, the leader rather than
// another; empty if it may come in. It must reach everybody who renews, since it would
// soon be suspended again otherwise. A member that does not renew must not keep others
// out.
func (r *Rules) LetIn(name string, unreached []string, s Sight, now time.Duration) (obstacle string) {
	delete(r.kept, name)
	for node, m := range r.members {
		if m.Name == name || !slices.Contains(unreached, m.Name) {
			continue
		}
		if s.Boots[m.Name] != m.Boot || r.silent(node, now) >= r.terms.Lease/2 {
			continue
		}
		if obstacle == "" || m.Name == s.Self || obstacle != s.Self && m.Name < obstacle {
			obstacle = m.Name
		}
	}
	if obstacle != "" && obstacle == s.Self && len(r.kept) < maxFlaps {
		r.kept[name] = now
	}
	return obstacle
}
