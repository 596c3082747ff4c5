package meter

import "time"

// order counts inversions: pairs of requests of which the younger one was let in
// first. It numbers requests by arrival and keeps, in a Fenwick tree over a
// window of numbers, the waiting requests; the window moves along with the oldest.
type order struct {
	base    uint64 // number of the first in the window
	next    uint64 // number that the next arrival gets
	oldest  uint64 // no smaller number waits
	tree    []uint32
	waiting []arrival
}

// arrival is when a request arrived, if it still waits.
type arrival struct {
	at    time.Duration
	waits bool
}

func newOrder() *order {
	const size = 1 << 10
	return &order{tree: make([]uint32, size+1), waiting: make([]arrival, size)} // the tree counts from 1
}

// arrive numbers a request that arrives now.
func (o *order) arrive(now time.Duration) uint64 {
	if o.next-o.base == uint64(len(o.waiting)) {
		o.move()
	}
	n := o.next
	o.next++
	o.add(int(n-o.base), 1)
	o.waiting[n-o.base] = arrival{now, true}
	return n
}

// leave takes a request out and returns how many older ones wait, and by how much
// the oldest of them is older.
func (o *order) leave(n uint64) (older int, gap time.Duration) {
	i := int(n - o.base)
	o.add(i, ^uint32(0))
	o.waiting[i].waits = false
	for j := i; j > 0; j &= j - 1 {
		older += int(o.tree[j])
	}
	for o.oldest < o.next && !o.waiting[o.oldest-o.base].waits {
		o.oldest++
	}
	if older > 0 {
		gap = o.waiting[i].at - o.waiting[o.oldest-o.base].at
	}
	return older, gap
}

func (o *order) add(i int, d uint32) {
	for j := i + 1; j < len(o.tree); j += j & -j {
		o.tree[j] += d
	}
}

// move lets the window begin at the oldest that waits, and doubles it while it
// would be more than half full.
func (o *order) move() {
	kept := o.waiting[o.oldest-o.base:]
	size := len(o.waiting)
	for size < 2*len(kept) {
		size *= 2
	}
	waiting := make([]arrival, size)
	copy(waiting, kept)
	o.base = o.oldest
	o.waiting, o.tree = waiting, make([]uint32, size+1)
	for i, w := range waiting {
		if w.waits {
			o.add(i, 1)
		}
	}
}
