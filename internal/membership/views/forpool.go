package views

import (
	"maps"
	"slices"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// ForPool is what the view says about one pool to the gateway self, whose tickets so many
// successors keep.
func (v *View) ForPool(spec Pool, self kmutex.Node, replicas int) pool.View {
	pv := pool.View{
		K: spec.K, Left: spec.Rate != (Rate{}) && spec.Left > 0 || spec.retiring(), Epoch: spec.Epoch, Began: kmutex.Node(spec.Began), Home: spec.Home,
		Owed: len(spec.Owed) > 0, Tickets: spec.Tickets > 0, Wait: v.LeaseWait(),
	}
	for _, c := range spec.Classes {
		if c.K > 0 || len(c.Tokens) > 0 {
			pv.Classes = append(pv.Classes, kmutex.Class{K: c.K, Tokens: c.Tokens})
		}
	}
	for _, m := range v.Members {
		if !m.Witness {
			pv.Members = append(pv.Members, m.Node)
		}
		pv.Newest = max(pv.Newest, m.Node)
	}
	for _, l := range v.Lost {
		pv.Newest = max(pv.Newest, l.Node)
		pv.Gone = append(pv.Gone, l.Node)
		if pv.Tickets && l.At > spec.Tickets && !l.Witness {
			pv.Lost = append(pv.Lost, replication.Lost{Node: l.Node, Successor: l.Successor})
		}
	}
	if pv.Tickets {
		here, _ := v.Member(self)
		for _, name := range v.Ring().Successors(here.Name, max(1, replicas)) {
			m, _ := v.Named(name)
			pv.Successors = append(pv.Successors, m.Node)
		}
		pv.Witnessed, pv.Missed = v.witnessed(self, spec.Tickets), v.missed(self)
		pv.MaxTTL = spec.TicketTTL
	}
	return pv
}

// stays returns the times in the views of all gateways that the view knows of.
func (v *View) stays() map[kmutex.Node]replication.Stay {
	stays := make(map[kmutex.Node]replication.Stay, len(v.Members)+len(v.Lost))
	for _, m := range v.Serving() {
		stays[m.Node] = replication.Stay{Name: m.Name, Node: m.Node}
	}
	for _, l := range v.Lost {
		if !l.Witness {
			stays[l.Node] = replication.Stay{Name: l.Name, Node: l.Node, Out: l.At}
		}
	}
	return stays
}

// missed returns [pool.View.Missed].
func (v *View) missed(self kmutex.Node) func(kmutex.Node, func(kmutex.Node) bool) bool {
	return func(owner kmutex.Node, kept func(kmutex.Node) bool) bool {
		stays := v.stays()
		stay, known := stays[owner]
		return !known || replication.Missed(stays[self], stay, slices.Collect(maps.Values(stays)), kept)
	}
}

// witnessed returns [pool.View.Witnessed] for a pool with tickets since a log entry.
func (v *View) witnessed(self kmutex.Node, tickets uint64) func(kmutex.Node) bool {
	return func(node kmutex.Node) bool {
		stays := v.stays()
		lost, known := stays[node]
		if !known || lost.Out == 0 || v.forgotten() > max(tickets, uint64(node)) {
			return false
		}
		return replication.Witnessed(stays[self], lost, tickets, slices.Collect(maps.Values(stays)))
	}
}
