package meter

// order counts inversions: pairs of requests of which the younger one was let in
// first. It numbers requests by arrival and keeps, in a Fenwick tree over a
// window of numbers, those that wait; the window moves along with the oldest one.
type order struct {
	base    uint64   // number of the first in the window
	next    uint64   // number that the next arrival gets
	tree    []uint32 // 1-based; len is the window's size + 1
	waiting []bool
	count   int
}

func newOrder() *order {
	const size = 1 << 10
	return &order{tree: make([]uint32, size+1), waiting: make([]bool, size)}
}

// arrive numbers a request.
func (o *order) arrive() uint64 {
	if o.next-o.base == uint64(len(o.waiting)) {
		o.move()
	}
	n := o.next
	o.next++
	o.add(int(n-o.base), 1)
	o.waiting[n-o.base] = true
	o.count++
	return n
}

// leave takes a request out and returns how many older ones wait.
func (o *order) leave(n uint64) int {
	i := int(n - o.base)
	o.add(i, ^uint32(0))
	o.waiting[i] = false
	o.count--
	older := uint32(0)
	for j := i; j > 0; j &= j - 1 {
		older += o.tree[j]
	}
	return int(older)
}

func (o *order) add(i int, d uint32) {
	for j := i + 1; j < len(o.tree); j += j & -j {
		o.tree[j] += d
	}
}

// move lets the window begin at the oldest that waits, and doubles it while it
// would be more than half full.
func (o *order) move() {
	first := 0
	for first < len(o.waiting) && !o.waiting[first] {
		first++
	}
	kept := o.waiting[first:]
	size := len(o.waiting)
	for size < 2*len(kept) {
		size *= 2
	}
	waiting := make([]bool, size)
	copy(waiting, kept)
	o.base += uint64(first)
	o.waiting, o.tree = waiting, make([]uint32, size+1)
	for i, w := range waiting {
		if w {
			o.add(i, 1)
		}
	}
}
