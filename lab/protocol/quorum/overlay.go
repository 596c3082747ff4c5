package quorum

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/chordring"
)

// key is one replica of one resource, as a number: resource x has the keys
// x*M to x*M + M-1.
type key int

// overlay is the Chord network below the protocols: who is there, which node is
// responsible for which key, and where a message for a key goes next. It repairs
// itself at once when a node comes or goes, as if every node knew.
type overlay struct {
	names []string // of the nodes
	nodes map[string]int
	keys  []string
	there []bool
	place []int // by key: the responsible node
	ring  *chordring.Ring
	hops  map[hop]int
}

// hop is one step of a route.
type hop struct {
	at int
	to key
}

func newOverlay(nodes, resources, replicas int, absent []int) *overlay {
	o := &overlay{nodes: make(map[string]int, nodes), there: make([]bool, nodes)}
	for i := range nodes {
		o.names = append(o.names, fmt.Sprint("node-", i))
		o.nodes[o.names[i]] = i
		o.there[i] = !slices.Contains(absent, i)
	}
	for x := range resources {
		for j := range replicas {
			o.keys = append(o.keys, fmt.Sprintf("resource-%d/replica-%d", x, j))
		}
	}
	o.place = make([]int, len(o.keys))
	o.rebuild()
	return o
}

// rebuild computes the ring of those who are there and returns the keys that have
// another responsible node now.
func (o *overlay) rebuild() (moved []key) {
	names := make([]string, 0, len(o.names))
	for i, name := range o.names {
		if o.there[i] {
			names = append(names, name)
		}
	}
	o.ring, o.hops = chordring.New(names), make(map[hop]int)
	for k, text := range o.keys {
		if at := o.nodes[o.ring.Owner(text)]; at != o.place[k] {
			o.place[k] = at
			moved = append(moved, key(k))
		}
	}
	return moved
}

// next returns the node to which at forwards a message for a key: the first step
// of the Chord look-up.
func (o *overlay) next(at int, k key) int {
	if to, ok := o.hops[hop{at, k}]; ok {
		return to
	}
	path := o.ring.Route(o.names[at], o.keys[k])
	for i := 1; i < len(path); i++ {
		o.hops[hop{o.nodes[path[i-1]], k}] = o.nodes[path[i]]
	}
	return o.hops[hop{at, k}]
}
