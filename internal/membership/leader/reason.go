package leader

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Reason tells why a member is suspended.
type Reason string

// The reasons. Silent and Over go with the time for which no renewal has come.
const (
	Gone    Reason = "its peer port does not answer"
	Silent  Reason = "gossip does not see it"
	Over    Reason = "its lease is over"
	Apart   Reason = "its link to another member is down, and both renew their leases"
	Missing Reason = "its report does not reach the home of a pool"
	Unheard Reason = "it is a pool's home, and most reports do not reach it"
	Behind  Reason = "it renews its lease and does not follow the views"
	Keeps   Reason = "a larger group of gateways cannot join because they do not reach it"
)

// Suspicion is a member to suspend.
type Suspicion struct {
	views.Member
	Reason Reason
	// Quiet is for how long no renewal has come from it.
	Quiet time.Duration
	// Reporters are the members that complained, by name. Without any it is what the
	// leader has seen.
	Reporters []string
}

// maxReporters bounds how many are named.
const maxReporters = 3

// Text says why, and who reported it, in one line. Leader is the leader's name.
func (s Suspicion) Text(leader string) string {
	why := string(s.Reason)
	if s.Reason == Silent || s.Reason == Over {
		why = fmt.Sprintf("no lease renewed in the last %.1f s, and %s", s.Quiet.Seconds(), s.Reason)
	}
	by := cmp.Or(strings.Join(s.Reporters[:min(len(s.Reporters), maxReporters)], ", "), leader)
	if more := len(s.Reporters) - maxReporters; more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return why + ", reported by " + by
}

// reporters returns the members whose fresh reports complain about a node.
func (r *Rules) reporters(node kmutex.Node, why Reason, now time.Duration) []string {
	var names []string
	for other, rep := range r.reports {
		_, misses := rep.missing[node]
		complains := why == Apart && slices.Contains(rep.Down, node) || why == Missing && misses
		if complains && r.fresh(rep, now) {
			names = append(names, r.members[other].Name)
		}
	}
	slices.Sort(names)
	return names
}
