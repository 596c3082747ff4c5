package sim

import "time"

// queue is a priority queue of events by time, first come first served among events of one instant. Its
// heap holds keys only, four children to a node, so that sifting stays within few cache lines; the events
// stand in slots that are used again.
type queue struct {
	keys  []key
	slots []event
	free  []uint32
	seq   uint64
}

type key struct {
	at   time.Duration
	seq  uint64
	slot uint32
}

func (a key) before(b key) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// event is what happens: a message arrives, or a timer runs out.
type event struct {
	message any // nil: a timer
	timer   Timer
	to      int32
	from    int32
	// life of the node to for which the event is; sent: life of the node that sent it.
	life, sent uint32
	seq        uint64 // in order of push; kept when the event is pushed again
}

const arity = 4

func (q *queue) push(at time.Duration, e event) {
	if e.seq == 0 {
		q.seq++
		e.seq = q.seq
	}
	var slot uint32
	if n := len(q.free); n > 0 {
		slot = q.free[n-1]
		q.free = q.free[:n-1]
		q.slots[slot] = e
	} else {
		slot = uint32(len(q.slots))
		q.slots = append(q.slots, e)
	}
	k := key{at: at, seq: e.seq, slot: slot}
	q.keys = append(q.keys, k)
	i := len(q.keys) - 1
	for i > 0 {
		up := (i - 1) / arity
		if !k.before(q.keys[up]) {
			break
		}
		q.keys[i] = q.keys[up]
		i = up
	}
	q.keys[i] = k
}

// pop takes out the first event. The queue must not be empty.
func (q *queue) pop() (time.Duration, event) {
	top := q.keys[0]
	last := len(q.keys) - 1
	k := q.keys[last]
	q.keys = q.keys[:last]
	if last > 0 {
		q.sink(k)
	}
	e := q.slots[top.slot]
	q.slots[top.slot].message = nil // the garbage collector may have it
	q.free = append(q.free, top.slot)
	return top.at, e
}

// sink puts k in at the root, which is free, and moves it down to its place.
func (q *queue) sink(k key) {
	i := 0
	for {
		first := arity*i + 1
		if first >= len(q.keys) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(q.keys)); c++ {
			if q.keys[c].before(q.keys[least]) {
				least = c
			}
		}
		if !q.keys[least].before(k) {
			break
		}
		q.keys[i] = q.keys[least]
		i = least
	}
	q.keys[i] = k
}
