package leader

import (
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// settle notes which lost members' leases are over. A pool that waits for its
// longest hold counts from there, not from the suspension: until its lease was over
// the gateway may have let requests in.
func (r *Rules) settle(now time.Duration) {
	ended := make(map[kmutex.Node]time.Duration)
	for _, p := range r.view.Pools {
		for _, node := range p.OwedHolds() {
			if _, leased := slices.BinarySearch(r.leased, node); leased {
				continue
			}
			at, known := r.ended[node]
			if !known {
				at = now
			}
			ended[node] = at
		}
	}
	r.ended = ended
}

// expired returns the lost members whose leases have provably run out.
func (r *Rules) expired(now time.Duration) []kmutex.Node {
	var nodes []kmutex.Node
	for _, node := range r.leased {
		if r.grantor.Expired(node, now) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// due returns what pools get back that wait for their longest hold.
func (r *Rules) due(now time.Duration) []Return {
	var due []Return
	for _, p := range r.view.Pools {
		var nodes []kmutex.Node
		for _, node := range p.OwedHolds() {
			if at, over := r.ended[node]; over && now-at >= p.HoldMax {
				nodes = append(nodes, node)
			}
		}
		if len(nodes) > 0 {
			due = append(due, Return{Pool: p.Name, Nodes: nodes})
		}
	}
	return due
}
