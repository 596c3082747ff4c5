package leader

import (
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Return is what a pool gets back.
type Return struct {
	Pool  string
	Nodes []kmutex.Node
}

// Verdict is what the leader has to do. All suspicions belong in one command, so
// that they cost one epoch.
type Verdict struct {
	// Suspend these members, in ascending order of Node.
	Suspend []Suspicion
	// Expire these lost members: their leases have provably run out.
	Expire []kmutex.Node
	// Return to these pools what lost members owe them beyond their leases.
	Return []Return
	// HandOver the lead to another gateway; [Rules.HandedOver] is to be called with
	// the attempt.
	HandOver bool
}

// Judge returns what is to be done now. The driver calls it every [Interval] and
// follows the view that comes of it before it judges again.
func (r *Rules) Judge(s Observation, now time.Duration) Verdict {
	if now-r.looked > r.terms.Lease/4 {
		// The leader itself was stopped: what it has not heard says nothing.
		r.awake = now
	}
	r.looked = now
	return Verdict{
		Suspend: r.suspects(s, now), Expire: r.expired(now), Return: r.due(now),
		HandOver: r.unfit(s, now),
	}
}

func (r *Rules) suspects(s Observation, now time.Duration) []Suspicion {
	if s.Alone { // the next leader would carry out what this one proposes
		r.accused = nil
		return nil
	}
	reasons := make(map[kmutex.Node]Reason)
	take := func(node kmutex.Node, why Reason) {
		if _, in := r.members[node]; in && reasons[node] == "" {
			reasons[node] = why
		}
	}
	for node, since := range s.Unreachable {
		// A renewal that came after the first of the dials speaks against it.
		if heard, ever := r.grantor.Heard(node); !ever || heard < since {
			take(node, Gone)
		}
	}
	for node, m := range r.members {
		switch quiet := r.silent(node, now); {
		case quiet >= r.terms.Wait():
			take(node, Over)
		case quiet >= r.terms.Lease/2 && s.Boots[m.Name] != m.Boot:
			take(node, Silent)
		}
		if r.behind(node, now) {
			take(node, Behind)
		}
	}
	r.accused = r.apart(now)
	keepers := r.keepers(s, now)
	for node, m := range r.members {
		if keepers[m.Name] && m.Name != s.Self && r.accused[node] == "" {
			r.accused[node] = Keeps
		}
	}
	for node, why := range r.accused {
		take(node, why)
	}
	maps.DeleteFunc(r.accused, func(node kmutex.Node, why Reason) bool { return reasons[node] != why })
	suspects := make([]Suspicion, 0, len(reasons))
	for _, node := range slices.Sorted(maps.Keys(reasons)) {
		why := reasons[node]
		suspects = append(suspects, Suspicion{
			Member: r.members[node], Reason: why, Quiet: r.silent(node, now), Reporters: r.reporters(node, why, now),
		})
	}
	return suspects
}

// behind reports that a member renews and does not follow the views: whoever does
// not take part in forming an epoch keeps all from it.
func (r *Rules) behind(node kmutex.Node, now time.Duration) bool {
	rep, ok := r.reports[node]
	return ok && rep.View < r.view.Number && now-rep.followed > r.terms.Lease/2 && rep.at-rep.followed > r.terms.Lease/4
}

// unfit reports that this leader should not be one: more gateways live and do not get
// through to it than do, or the voters do not, or it keeps out two gateways that another
// leader could let in. A leader that is kept out itself is one of those that do not. One that has handed over lately stays
// for a whole wait, so that leases can expire.
func (r *Rules) unfit(s Observation, now time.Duration) bool {
	patience, wait := r.terms.Lease/2, r.terms.Wait()
	if r.resigns && now-r.handed < 4*wait {
		patience = wait
	}
	if now-max(r.since, r.awake) < patience || len(r.members)+len(r.kept) < 3 {
		return false
	}
	if r.unconfirmed != never && now-max(r.unconfirmed, r.awake) >= patience {
		return true
	}
	if r.keepers(s, now)[s.Self] || r.witnessLeads(s, now) {
		return true
	}
	through, not := 0, 0
	for node, m := range r.members {
		limit := r.terms.Lease / 2
		if _, ever := r.grantor.Heard(node); !ever {
			limit = firstRenewal(r.terms) // its first renewal may need a new connection
		}
		switch _, gone := s.Unreachable[node]; {
		case r.silent(node, now) < limit:
			through++
		case !gone && s.Boots[m.Name] == m.Boot:
			not++
		}
	}
	for name, o := range r.kept {
		if (name == s.Self || slices.Contains(o.obstacles, s.Self)) && now-o.at < r.terms.Lease {
			not++
		}
	}
	return not > through
}

// witnessLeads reports that the leader is a witness and a gateway that serves could
// lead in its place: the leader is the one member to which all need a connection.
func (r *Rules) witnessLeads(s Observation, now time.Duration) bool {
	witness, serves := false, false
	for node, m := range r.members {
		switch {
		case m.Witness:
			witness = witness || m.Name == s.Self
		case r.silent(node, now) < r.terms.Lease/2:
			serves = true
		}
	}
	return witness && serves
}

// HandedOver notes that this leader tries to hand the lead over.
func (r *Rules) HandedOver(now time.Duration) { r.handed, r.resigns = now, true }

// apart returns whom to suspend so that those left have links to each other and
// every home gets its reports.
func (r *Rules) apart(now time.Duration) map[kmutex.Node]Reason {
	reasons := r.unreported(now)
	down := make(map[kmutex.Node][]kmutex.Node)
	for node, rep := range r.reports {
		if r.fresh(rep, now) && reasons[node] == "" && !r.members[node].Witness {
			down[node] = rep.Down
		}
	}
	for _, node := range separate(down) {
		reasons[node] = Apart
	}
	return reasons
}

// unreported returns whom the homes' complaints are against. A home that misses
// most of those who renew is itself the one that nobody reaches. One that misses its
// own report cannot read its tickets: it accuses itself.
func (r *Rules) unreported(now time.Duration) map[kmutex.Node]Reason {
	reasons := make(map[kmutex.Node]Reason)
	renew := 0
	for _, rep := range r.reports {
		if r.fresh(rep, now) {
			renew++
		}
	}
	missed := make(map[kmutex.Node]bool)
	for home, rep := range r.reports {
		if !r.view.IsHome(home) || !r.fresh(rep, now) {
			continue
		}
		var these []kmutex.Node
		living := 0
		for node, since := range rep.missing {
			if _, in := r.members[node]; !in || rep.at-since < r.terms.Interval()/2 {
				continue // one complaint alone may come of a pause of the home
			}
			if at, joined := r.joined[node]; joined && now-at < firstReport(r.terms) {
				continue // its link may not be up yet
			}
			these = append(these, node)
			if other, renews := r.reports[node]; node != home && renews && r.fresh(other, now) {
				living++
			}
		}
		if living >= 2 && 2*living > renew-1 {
			reasons[home] = Unheard
			continue
		}
		for _, node := range these {
			missed[node] = true
		}
	}
	for node := range missed {
		if reasons[node] == "" {
			reasons[node] = Missing
		}
	}
	return reasons
}

// separate returns whom to take out so that no two of those left complain about
// each other: as long as two do, the one in most such pairs goes, of equal ones the
// youngest. A complaint of one end alone is none.
func separate(down map[kmutex.Node][]kmutex.Node) []kmutex.Node {
	pairs := make(map[kmutex.Node]map[kmutex.Node]bool)
	for a, complaints := range down {
		for _, b := range complaints {
			if a != b && slices.Contains(down[b], a) {
				if pairs[a] == nil {
					pairs[a] = make(map[kmutex.Node]bool)
				}
				pairs[a][b] = true
			}
		}
	}
	var out []kmutex.Node
	for {
		var worst kmutex.Node
		most := 0
		for node, with := range pairs {
			if n := len(with); n > most || n == most && n > 0 && node > worst {
				worst, most = node, n
			}
		}
		if most == 0 {
			slices.Sort(out)
			return out
		}
		out = append(out, worst)
		for other := range pairs[worst] {
			delete(pairs[other], worst)
		}
		delete(pairs, worst)
	}
}
