package quorum

import (
	"fmt"

	"github.com/kgate/kgate/chordring"
)

// key is one replica of one resource, as a number: resource x has the keys
// x*M to x*M + M-1.
type key int

// overlay is the Chord network below the protocols. It repairs itself at once when
// a node comes or goes, as if every node knew.
type overlay struct {
	there []bool
	place []int // by key: the responsible node
	// rebuild computes the ring of those who are there, and returns the keys that
	// have another responsible node now.
	rebuild func() []key
	// next returns the node to which one forwards a message for a key.
	next func(at int, k key) int
}

// hop is one step of a route.
type hop struct {
	at int
	to key
}

func newOverlay(nodes, resources, replicas int, absent []int) *overlay {
	o := &overlay{there: make([]bool, nodes), place: make([]int, resources*replicas)}
	names, index := make([]string, nodes), make(map[string]int, nodes)
	for i := range names {
		names[i] = fmt.Sprint("node-", i)
		index[names[i]], o.there[i] = i, true
	}
	for _, i := range absent {
		o.there[i] = false
	}
	texts := make([]string, len(o.place))
	for k := range texts {
		texts[k] = fmt.Sprintf("resource-%d/replica-%d", k/replicas, k%replicas)
	}
	var ring *chordring.Ring
	var hops map[hop]int // steps of routes that were looked up before
	o.rebuild = func() (moved []key) {
		var alive []string
		for i, name := range names {
			if o.there[i] {
				alive = append(alive, name)
			}
		}
		ring, hops = chordring.New(alive), make(map[hop]int)
		for k, text := range texts {
			if at := index[ring.Owner(text)]; at != o.place[k] {
				o.place[k] = at
				moved = append(moved, key(k))
			}
		}
		return moved
	}
	o.next = func(at int, k key) int {
		if to, ok := hops[hop{at, k}]; ok {
			return to
		}
		path := ring.Route(names[at], texts[k])
		if len(path) < 2 {
			panic(fmt.Sprintf("quorum: %s, which is not there or is responsible itself, forwards", names[at]))
		}
		for i := 1; i < len(path); i++ {
			hops[hop{index[path[i-1]], k}] = index[path[i]]
		}
		return hops[hop{at, k}]
	}
	o.rebuild()
	return o
}
