package leader

import (
	"maps"
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

// LetIn judges a gateway that wants to come in and does not reach those that it
// names. It returns a member for whose sake it has to stay out, the leader rather than
// another; empty if it may come in. It must reach everybody who renews, since it would
// soon be suspended again otherwise. A member that does not renew must not keep others
// out.
func (r *Rules) LetIn(name string, unreached []string, s Observation, now time.Duration) (obstacle string) {
	obstacles := 0
	for node, m := range r.members {
		if m.Name == name || !slices.Contains(unreached, m.Name) {
			continue
		}
		if s.Boots[m.Name] != m.Boot || r.silent(node, now) >= r.terms.Lease/2 {
			continue
		}
		obstacles++
		if obstacle == "" || m.Name == s.Self || obstacle != s.Self && m.Name < obstacle {
			obstacle = m.Name
		}
	}
	if obstacle == "" {
		delete(r.kept, name)
	} else {
		r.keepOut(name, outsider{by: obstacle, alone: obstacles == 1, unreached: unreached}, now)
	}
	return obstacle
}

// outsider is a gateway that has to stay out.
type outsider struct {
	// by is the member for whose sake, alone if there is no other such member.
	by    string
	alone bool
	// unreached are the gateways that it does not reach.
	unreached []string
	// since is since when, and at is when that was seen last.
	since, at time.Duration
}

func (r *Rules) keepOut(name string, o outsider, now time.Duration) {
	last, known := r.kept[name]
	if !known && len(r.kept) >= maxFlaps {
		return
	}
	if o.since, o.at = now, now; known && last.by == o.by && last.alone == o.alone && now-last.at < r.terms.Lease {
		o.since = last.since
	}
	r.kept[name] = o
}

// keepers returns the members for whose sake alone two gateways or more have to stay
// out that reach each other: without such a member there would be more gateways in the
// view.
func (r *Rules) keepers(s Observation, now time.Duration) map[string]bool {
	if len(r.members) < 2 || len(r.kept) < 2 {
		return nil
	}
	out := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(r.kept)) {
		o := r.kept[name]
		if !o.alone || s.Boots[name] == "" || now-o.at >= r.terms.Lease || now-o.since < r.terms.Lease/3 {
			continue
		}
		if !slices.ContainsFunc(out[o.by], func(other string) bool {
			return slices.Contains(o.unreached, other) || slices.Contains(r.kept[other].unreached, name)
		}) {
			out[o.by] = append(out[o.by], name)
		}
	}
	keepers := make(map[string]bool)
	for by, names := range out {
		keepers[by] = len(names) >= 2
	}
	return keepers
}
