package quorum

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/kgate/kgate/chordring"
)

// key is one replica of one resource, as a number: resource x has the keys
// x*M to x*M + M-1.
type key int

// overlay is the network below the protocols: Chord, or Pastry. It repairs itself at once when
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

func newOverlay(nodes, resources, replicas int, absent []int, prefix bool) *overlay {
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
	if prefix {
		o.pastry(names, texts)
		o.rebuild()
		return o
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

// pastry routes by prefixes of base 16: each step goes to a node that has one digit more in common with the key, or, from
// among the eight neighbours on either side of it, to the node that is closest to the key.
func (o *overlay) pastry(names, texts []string) {
	const half = 8 // of the leaf set
	id := func(text string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text))
		x := h.Sum64() // whose high digits differ little for texts that end differently
		x ^= x >> 32
		x *= 0x9e3779b97f4a7c15
		return x ^ x>>29
	}
	ids, keys := make([]uint64, len(names)), make([]uint64, len(texts))
	for i, name := range names {
		ids[i] = id(name)
	}
	for k, text := range texts {
		keys[k] = id(text)
	}
	var order []int                 // living nodes by ID
	rank := make([]int, len(names)) // their place there
	first := func(x uint64) int {   // in order, of those not below x
		i, _ := slices.BinarySearchFunc(order, x, func(node int, x uint64) int {
			switch {
			case ids[node] < x:
				return -1
			case ids[node] > x:
				return 1
			}
			return 0
		})
		return i
	}
	o.rebuild = func() (moved []key) {
		order = order[:0]
		for i, there := range o.there {
			if there {
				order = append(order, i)
			}
		}
		slices.SortFunc(order, func(a, b int) int {
			if ids[a] < ids[b] {
				return -1
			}
			return 1
		})
		for at, i := range order {
			rank[i] = at
		}
		for k, x := range keys {
			above := first(x)
			a, b := order[above%len(order)], order[(above+len(order)-1)%len(order)]
			if x-ids[b] < ids[a]-x {
				a = b
			}
			if o.place[k] != a {
				o.place[k] = a
				moved = append(moved, key(k))
			}
		}
		return moved
	}
	o.next = func(at int, k key) int {
		to := o.place[k]
		apart := (rank[to] - rank[at] + len(order)) % len(order)
		common := bits.LeadingZeros64(keys[k]^ids[at]) / 4
		if min(apart, len(order)-apart) <= half || common > 14 {
			return to
		}
		shift := uint(60 - 4*common) // of the digit that the next node has to have
		low := keys[k] >> shift << shift
		from, end := first(low), len(order)
		if high := low + 1<<shift; high != 0 {
			end = first(high)
		}
		if from == end {
			return to
		}
		return order[from+int((ids[at]>>7^uint64(common)*0x9e3779b9)%uint64(end-from))] // always the same, as in its routing table
	}
}
