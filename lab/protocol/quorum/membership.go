package quorum

import (
	"slices"

	"github.com/kgate/kgate/lab/sim"
)

// Lost tells the fleet that a node has died, with all that it knew. The overlay
// closes the gap, and after the time of a ping the node's neighbours on the routes
// repair these.
func (f *Fleet) Lost(node int) {
	for at := range f.nodes {
		n := &f.nodes[at]
		if at == node || len(n.entries) == 0 || !f.overlay.there[at] {
			continue
		}
		var torn []key
		for k, e := range n.entries {
			if e.next == node || e.prev == node {
				torn = append(torn, k)
			}
		}
		slices.Sort(torn)
		for _, k := range torn {
			f.host.After(at, f.base(), sim.Timer{Kind: timerRepair, Arg: uint64(k)})
		}
	}
	// A node's timestamps go on growing in its next life: two requests must never
	// have the same.
	clock := f.nodes[node].clock
	f.nodes[node] = newNode()
	f.nodes[node].clock = clock
	f.overlay.there[node] = false
	f.changed = true
}

// Joined tells the fleet that a node is there that was not. It knows nothing of the
// keys that it is now responsible for.
func (f *Fleet) Joined(node int) {
	f.overlay.there[node] = true
	f.changed = true
}

// follow brings the overlay up to date.
func (f *Fleet) follow() {
	if !f.changed {
		return
	}
	f.changed = false
	for _, k := range f.overlay.rebuild() {
		f.reset(k)
	}
}

// Reset lets one replica of a resource forget everything, as after a crash.
func (f *Fleet) Reset(resource, replica int) { f.reset(key(resource*f.opt.Replicas + replica)) }

// reset begins a replica. It does not know to whom its predecessor has given a vote,
// so it gives none until such a vote has run out or an owner has told it; otherwise
// as many replicas as the quorums have in common could be reset and let a second
// owner in.
func (f *Fleet) reset(k key) {
	f.replicas[k] = replica{}
	if !f.opt.Eager {
		f.replicas[k].abstain = f.host.Now() + f.opt.Lease
	}
}

// repair mends a route at a node whose neighbour on it was lost. Before the gap, the route is laid anew;
// behind it, the rest of the old route is cleared.
func (f *Fleet) repair(at int, k key) {
	n := &f.nodes[at]
	e, there := n.entries[k]
	if !there || e.ended || f.stale(e) || f.overlay.place[k] == at {
		return
	}
	if !f.overlay.there[e.next] {
		e.next = f.overlay.next(at, k)
		n.entries[k] = e
		m := message{kind: request, key: k, req: e.holder}
		if f.opt.Form == EndToEnd {
			m = message{kind: winner, key: k, req: e.holder, owner: e.owner, epoch: e.epoch}
		}
		f.send(at, e.next, m)
	}
	if !f.overlay.there[e.prev] {
		f.route(at, message{kind: clean, key: k})
	}
}

// clear takes a node's part of an old route away and returns where the rest is.
func (f *Fleet) clear(at, from, next int, m *message) (int, bool) {
	n := &f.nodes[at]
	e, there := n.entries[m.key]
	if !there || at != from && e.prev != from {
		return next, len(m.line) == 0
	}
	delete(n.entries, m.key)
	for _, q := range e.line {
		m.line = insert(m.line, q)
	}
	if f.overlay.there[e.next] {
		next = e.next
	}
	return next, false
}
