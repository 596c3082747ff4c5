package chordring

import (
	"cmp"
	"slices"
)

// Ring is the Chord ring of one view. It never changes and may be used by any
// number of goroutines.
type Ring struct {
	nodes []node         // in order of identifier, ties in order of name
	at    map[string]int // name -> position in nodes
	hash  func(string) identifier
}

type node struct {
	id   identifier
	name string
}

func (a node) compare(b node) int {
	return cmp.Or(a.id.compare(b.id), cmp.Compare(a.name, b.name))
}

// New returns the ring of the gateways named. Order and repetitions do not
// count. The ring of no names is valid; it owns nothing.
func New(names []string) *Ring { return newRing(names, identify) }

// newRing takes the hash function as a parameter for the sake of tests: two
// names with the same SHA-1 are hard to find.
func newRing(names []string, hash func(string) identifier) *Ring {
	r := &Ring{
		nodes: make([]node, 0, len(names)),
		at:    make(map[string]int, len(names)),
		hash:  hash,
	}
	for _, name := range names {
		r.nodes = append(r.nodes, node{hash(name), name})
	}
	slices.SortFunc(r.nodes, node.compare)
	r.nodes = slices.Compact(r.nodes)
	for i, n := range r.nodes {
		r.at[n.name] = i
	}
	return r
}

// Names returns the gateways in the order of the ring, clockwise from
// identifier 0.
func (r *Ring) Names() []string {
	names := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		names[i] = n.name
	}
	return names
}

// Owner returns the gateway that owns the key: the first one at or after the
// key's identifier, clockwise (paper IV-B: successor(k)). It returns "" if the
// ring is empty.
func (r *Ring) Owner(key string) string {
	if len(r.nodes) == 0 {
		return ""
	}
	return r.nodes[r.successor(r.hash(key))].name
}

// Successors returns the p gateways that follow name clockwise, nearest first;
// fewer if there are not as many others. The name need not be on the ring: the
// heirs of a lost gateway are the successors of the place where it was.
func (r *Ring) Successors(name string, p int) []string {
	start, on := r.place(name)
	others := len(r.nodes)
	if on {
		start++
		others--
	}
	p = min(p, others)
	if p <= 0 {
		return nil
	}
	names := make([]string, p)
	for i := range names {
		names[i] = r.nodes[(start+i)%len(r.nodes)].name
	}
	return names
}

// successor returns the position of the first node at or after id. The ring
// must not be empty.
func (r *Ring) successor(id identifier) int {
	i, _ := slices.BinarySearchFunc(r.nodes, id, func(n node, id identifier) int {
		return n.id.compare(id)
	})
	return i % len(r.nodes)
}

// place returns the position where name stands or would stand, and whether it
// is on the ring.
func (r *Ring) place(name string) (int, bool) {
	if i, ok := r.at[name]; ok {
		return i, true
	}
	i, _ := slices.BinarySearchFunc(r.nodes, node{r.hash(name), name}, node.compare)
	return i, false
}
