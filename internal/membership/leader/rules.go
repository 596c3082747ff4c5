package leader

import (
	"maps"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Interval is how often the leader calls [Rules.Judge].
const Interval = 50 * time.Millisecond

// DownAfter is how long a link must be down before a member complains about it.
func DownAfter(t lease.Terms) time.Duration { return t.Lease / 2 }

// MissingAfter is how long a home waits for a member's report before it complains.
func MissingAfter(t lease.Terms) time.Duration { return t.Lease / 6 }

// firstRenewal is how long a member has for its first renewal to a leader: the view and a new
// connection come before it, with several round trips.
func firstRenewal(t lease.Terms) time.Duration { return 2 * t.Lease / 3 }

// firstReport is how long a member has that has come in until the leader knows that its reports
// arrive. Its links may need a second attempt, because it takes none before it has its lease. With
// round trips of a tenth of the lease its report needs 3/4 of one then; and what the home says of
// it is up to [lease.Terms.Interval] older than the leader takes it for.
func firstReport(t lease.Terms) time.Duration { return t.Lease }

// Report is what a member tells the leader with a renewal.
type Report struct {
	// View is the number of the newest view that it has.
	View uint64 `json:"view"`
	// Down are the members to which its link has been down for [DownAfter].
	Down []kmutex.Node `json:"down,omitempty"`
	// Missing are the members whose reports it has missed for [MissingAfter], as
	// the home of a pool.
	Missing []kmutex.Node `json:"missing,omitempty"`
}

// Observation is what the leader itself sees of the other gateways.
type Observation struct {
	// Self is the leader's own name.
	Self string
	// Boots are the boots of the gateways that gossip sees alive, by name.
	Boots map[string]string
	// Unreachable are the members that did not answer three dials in a row, and when
	// the first of these dials began. The driver dials members whose link is down, and
	// those that [Rules.Quiet] returns.
	Unreachable map[kmutex.Node]time.Duration
	// Alone: most of the voters do not answer the leader.
	Alone bool
}

// Rules are a leader's, in one term. They are used by one goroutine at a time.
type Rules struct {
	terms   lease.Terms
	grantor *lease.Grantor
	since   time.Duration
	// looked is when Judge was called last, and awake since when it has been called
	// without a long pause.
	looked, awake time.Duration
	view          *views.View
	members       map[kmutex.Node]views.Member
	// leased are the lost members whose leases may still run.
	leased []kmutex.Node
	// known is since when a member is known here.
	known map[kmutex.Node]time.Duration
	// joined is when a member came in, for those that did while this leader led.
	joined  map[kmutex.Node]time.Duration
	reports map[kmutex.Node]report
	// unconfirmed is since when renewals wait for a round; negative: none does.
	unconfirmed time.Duration
	// accused are the members that the last verdict suspends for what their links
	// do.
	accused map[kmutex.Node]Reason
	// kept are the gateways that have to stay out.
	kept map[string]outsider

	// What follows outlasts the term.

	// ended is when the lease of a lost member was first known to be over.
	ended map[kmutex.Node]time.Duration
	// handed is when this leader handed the lead over, if it ever did.
	handed  time.Duration
	resigns bool
	flaps   map[string]flap
}

// report is a member's newest, and when it came.
type report struct {
	Report
	at time.Duration
	// followed is when the member last took a step towards the newest view, or knew it.
	followed time.Duration
	// missing tells since when each complaint of Missing has been repeated.
	missing map[kmutex.Node]time.Duration
}

const never = time.Duration(-1)

// New returns the rules of a leader, whose leases the grantor keeps, from now on.
// Before are those of the last term that the same process led; nil if there is
// none.
func New(terms lease.Terms, grantor *lease.Grantor, before *Rules, now time.Duration) *Rules {
	r := &Rules{
		terms: terms, grantor: grantor, since: now, looked: now, awake: now,
		view: new(views.View), members: make(map[kmutex.Node]views.Member), known: make(map[kmutex.Node]time.Duration), joined: make(map[kmutex.Node]time.Duration),
		reports: make(map[kmutex.Node]report), unconfirmed: never, kept: make(map[string]outsider),
		ended: make(map[kmutex.Node]time.Duration), flaps: make(map[string]flap),
	}
	if before != nil {
		r.ended, r.flaps, r.handed, r.resigns = before.ended, before.flaps, before.handed, before.resigns
	}
	return r
}

// Follow takes in the agreed view, and has the grantor follow it, too.
func (r *Rules) Follow(v *views.View, now time.Duration) {
	nodes := make([]kmutex.Node, len(v.Members))
	members := make(map[kmutex.Node]views.Member, len(v.Members))
	known := make(map[kmutex.Node]time.Duration, len(v.Members))
	for i, m := range v.Members {
		nodes[i], members[m.Node] = m.Node, m
		at, old := r.known[m.Node]
		if !old {
			at = now
			if r.view.Number != 0 {
				r.joined[m.Node] = now
			}
		}
		known[m.Node] = at
	}
	r.leased = v.Leased()
	r.grantor.Follow(nodes, r.leased)
	for _, m := range v.Members {
		delete(r.kept, m.Name)
	}
	for node := range r.accused {
		if _, in := members[node]; !in {
			r.flapped(r.members[node].Name, r.accused[node], now)
			delete(r.accused, node)
		}
	}
	gone := func(node kmutex.Node) bool { _, in := members[node]; return !in }
	maps.DeleteFunc(r.reports, func(node kmutex.Node, _ report) bool { return gone(node) })
	maps.DeleteFunc(r.joined, func(node kmutex.Node, _ time.Duration) bool { return gone(node) })
	for node, rep := range r.reports {
		if rep.View == r.view.Number {
			rep.followed = now
			r.reports[node] = rep
		}
	}
	r.view, r.members, r.known = v, members, known
	r.settle(now)
}

// Receive takes in a renewal and what came with it: those of members, which the next round may grant.
func (r *Rules) Receive(n lease.Renewal, rep Report, now time.Duration) {
	if !r.grantor.Receive(n, now) {
		return
	}
	if r.unconfirmed == never {
		r.unconfirmed = now
	}
	last := r.reports[n.Node]
	missing := make(map[kmutex.Node]time.Duration, len(rep.Missing))
	for _, m := range rep.Missing {
		since, repeated := last.missing[m]
		if !repeated {
			since = now
		}
		missing[m] = since
	}
	followed := last.followed
	if rep.View > last.View || rep.View == r.view.Number {
		followed = now
	}
	r.reports[n.Node] = report{Report: rep, at: now, followed: followed, missing: missing}
}

// Confirmed takes in that a round has granted what waited for it.
func (r *Rules) Confirmed() { r.unconfirmed = never }

// silent returns for how long no renewal has come from a member, as far as this
// leader can tell.
func (r *Rules) silent(node kmutex.Node, now time.Duration) time.Duration {
	heard, _ := r.grantor.Heard(node)
	return now - max(r.known[node], heard, r.awake)
}

// Quiet returns the members that the driver should dial, since they have not renewed
// for a third of the lease. A link takes longer to notice that a host is gone.
func (r *Rules) Quiet(now time.Duration) []kmutex.Node {
	var quiet []kmutex.Node
	for node := range r.members {
		if r.silent(node, now) >= r.terms.Lease/3 {
			quiet = append(quiet, node)
		}
	}
	return quiet
}

// fresh reports that a report is the newest that can be expected.
func (r *Rules) fresh(rep report, now time.Duration) bool {
	return now-rep.at <= 2*r.terms.Interval()
}
