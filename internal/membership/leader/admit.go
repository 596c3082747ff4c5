package leader

import (
	"slices"
	"strings"
	"time"
)

// LetIn judges a gateway that wants to come in and does not reach those that it
// names. It returns a member for whose sake it has to stay out, the leader rather than
// another; empty if it may come in. It must reach everybody who renews, since it would
// soon be suspended again otherwise. A member that does not renew must not keep others
// out.
func (r *Rules) LetIn(name string, unreached []string, s Observation, now time.Duration) (obstacle string) {
	var obstacles []string
	for node, m := range r.members {
		if m.Name == name || !slices.Contains(unreached, m.Name) {
			continue
		}
		if m.Witness && m.Name != s.Self {
			continue // a witness needs no links but to the leader
		}
		if s.Boots[m.Name] != m.Boot || r.silent(node, now) >= r.terms.Lease/2 {
			continue
		}
		obstacles = append(obstacles, m.Name)
	}
	if len(obstacles) == 0 {
		delete(r.kept, name)
		return ""
	}
	slices.Sort(obstacles)
	r.keepOut(name, obstacles, unreached, now)
	if slices.Contains(obstacles, s.Self) {
		return s.Self
	}
	return obstacles[0]
}

// outsider is a gateway that has to stay out.
type outsider struct {
	// obstacles are the members for whose sake, in order of their names.
	obstacles []string
	// unreached are the gateways that it does not reach.
	unreached map[string]bool
	// since is since when, and at is when that was seen last.
	since, at time.Duration
}

// Knocks takes in that a gateway which gossip sees alive asks a member to be let in, and does not reach
// the leader.
func (r *Rules) Knocks(name, self string, now time.Duration) {
	r.keepOut(name, []string{self}, []string{self}, now)
}

func (r *Rules) keepOut(name string, obstacles, unreached []string, now time.Duration) {
	last, known := r.kept[name]
	if !known && len(r.kept) >= maxFlaps {
		return
	}
	o := outsider{obstacles: obstacles, unreached: make(map[string]bool, len(unreached)), since: now, at: now}
	for _, other := range unreached {
		o.unreached[other] = true
	}
	if known && slices.Equal(last.obstacles, obstacles) && now-last.at < r.terms.Lease {
		o.since = last.since
	}
	r.kept[name] = o
}

// keepers returns the members without whom there would be more gateways in the view:
// for their sake alone more gateways have to stay out than they are, and these reach each
// other. If the leader is one of them, it goes first.
func (r *Rules) keepers(s Observation, now time.Duration) map[string]bool {
	if len(r.kept) < 2 {
		return nil
	}
	out := make(map[string]outsider)
	sets := make(map[string][]string)
	for name, o := range r.kept {
		if s.Boots[name] != "" && now-o.at < r.terms.Lease && now-o.since >= r.terms.Lease/3 {
			out[name] = o
			sets[strings.Join(o.obstacles, "\x00")] = o.obstacles
		}
	}
	keepers := make(map[string]bool)
	for _, set := range sets {
		var names []string
		for name, o := range out {
			if !slices.ContainsFunc(o.obstacles, func(member string) bool { return !slices.Contains(set, member) }) {
				names = append(names, name)
			}
		}
		switch {
		case !r.connected(names, len(set)+1):
		case slices.Contains(set, s.Self):
			keepers[s.Self] = true
		default:
			for _, member := range set {
				keepers[member] = true
			}
		}
	}
	return keepers
}

// connected reports that so many of these gateways, which have to stay out, reach each
// other. It begins with each of them in turn: one that reaches none of the others does not
// speak for them.
func (r *Rules) connected(names []string, many int) bool {
	if len(names) < many {
		return false
	}
	slices.Sort(names)
	for _, first := range names {
		group := []string{first}
		for _, name := range names {
			if !slices.ContainsFunc(group, func(other string) bool {
				return other == name || r.kept[other].unreached[name] || r.kept[name].unreached[other]
			}) {
				group = append(group, name)
			}
			if len(group) >= many {
				return true
			}
		}
	}
	return false
}
