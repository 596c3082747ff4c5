package chordring

// Route returns the gateways that a Chord look-up of key visits, from first,
// the owner last (paper IV-D, find_successor): each gateway is the closest finger before the key of
// the gateway before it. The number of hops is the length minus 1. Route returns nil if from is not
// on the ring.
func (r *Ring) Route(from, key string) []string {
	at, ok := r.at[from]
	if !ok {
		return nil
	}
	id := r.hash(key)
	owner := r.successor(id)
	path := []string{from}
	for at != owner {
		next := (at + 1) % len(r.nodes)
		if next != owner {
			next = r.closestPreceding(at, id)
		}
		at = next
		path = append(path, r.nodes[at].name)
	}
	return path
}

// finger returns the position of finger i of the node at a position.
func (r *Ring) finger(at, i int) int {
	return r.successor(r.nodes[at].id.plusPower(i))
}

// closestPreceding returns the position of the farthest finger of the node at
// a position that lies strictly between that node and id (the paper's
// closest_preceding_finger). The caller has made sure that the node's
// successor lies there. Fingers that reach beyond id from the start are
// skipped.
func (r *Ring) closestPreceding(at int, id identifier) int {
	self := r.nodes[at].id
	way := id.minus(self)
	for i := way.log2(); i >= 0; i-- {
		f := r.finger(at, i)
		step := r.nodes[f].id.minus(self)
		if step.log2() >= 0 && step.compare(way) < 0 {
			return f
		}
	}
	return (at + 1) % len(r.nodes)
}
