package gateway

import (
	"maps"
	"slices"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// poolView is what the agreed view says about one pool to the gateway self, whose tickets
// so many successors keep.
func poolView(view *membership.View, spec membership.Pool, self kmutex.Node, replicas int) pool.View {
	v := pool.View{
		K: spec.K, Left: spec.Rate != (membership.Rate{}) && spec.Left > 0, Epoch: spec.Epoch, Began: kmutex.Node(spec.Began), Home: spec.Home,
		Owed: len(spec.Owed) > 0, Tickets: spec.Tickets > 0, Wait: view.LeaseWait(),
	}
	for _, m := range view.Members {
		if !m.Witness {
			v.Members = append(v.Members, m.Node)
		}
		v.Newest = max(v.Newest, m.Node)
	}
	for _, l := range view.Lost {
		v.Newest = max(v.Newest, l.Node)
		v.Gone = append(v.Gone, l.Node)
		if v.Tickets && l.At > spec.Tickets && !l.Witness {
			v.Lost = append(v.Lost, replication.Lost{Node: l.Node, Successor: l.Successor})
		}
	}
	if v.Tickets {
		here, _ := view.Member(self)
		for _, name := range view.Ring().Successors(here.Name, max(1, replicas)) {
			m, _ := view.Named(name)
			v.Successors = append(v.Successors, m.Node)
		}
		v.Witnessed, v.Missed = witnessed(view, self, spec.Tickets), missed(view, self)
		v.MaxTTL = spec.TicketTTL
	}
	return v
}

// staysOf returns the times in the views of all gateways that the view knows of.
func staysOf(view *membership.View) map[kmutex.Node]replication.Stay {
	stays := make(map[kmutex.Node]replication.Stay, len(view.Members)+len(view.Lost))
	for _, m := range view.Serving() {
		stays[m.Node] = replication.Stay{Name: m.Name, Node: m.Node}
	}
	for _, l := range view.Lost {
		if !l.Witness {
			stays[l.Node] = replication.Stay{Name: l.Name, Node: l.Node, Out: l.At}
		}
	}
	return stays
}

// missed returns [pool.View.Missed].
func missed(view *membership.View, self kmutex.Node) func(kmutex.Node, func(kmutex.Node) bool) bool {
	return func(owner kmutex.Node, kept func(kmutex.Node) bool) bool {
		stays := staysOf(view)
		stay, known := stays[owner]
		return !known || replication.Missed(stays[self], stay, slices.Collect(maps.Values(stays)), kept)
	}
}

// witnessed returns [pool.View.Witnessed] for a pool with tickets since a log entry.
func witnessed(view *membership.View, self kmutex.Node, tickets uint64) func(kmutex.Node) bool {
	return func(node kmutex.Node) bool {
		stays := staysOf(view)
		lost, known := stays[node]
		if !known || lost.Out == 0 || view.Forgotten() > max(tickets, uint64(node)) {
			return false
		}
		return replication.Witnessed(stays[self], lost, tickets, slices.Collect(maps.Values(stays)))
	}
}

// reasonOf returns why a pool entered an epoch.
func reasonOf(before, after membership.Pool, left bool) Reason {
	switch {
	case before.Epoch > 0 && (before.K != after.K || before.Parts() != after.Parts()):
		return ReasonK
	case before.Epoch > 0 && before.Rate != after.Rate:
		return ReasonRate
	case len(after.Owed) > len(before.Owed):
		return ReasonLoss
	case len(after.Owed) < len(before.Owed):
		return ReasonReturn
	case left:
		return ReasonLeave
	case after.Spread:
		return ReasonSpread
	case before.Epoch == 0 || after.Epoch > before.Epoch+1:
		return ReasonSeveral
	default:
		return ReasonRepair
	}
}

// someLeft reports whether a member of the view before is not in the one after.
func someLeft(before, after *membership.View) bool {
	return before != nil && slices.ContainsFunc(before.Members, func(m membership.Member) bool {
		_, in := after.Member(m.Node)
		return !in
	})
}
