package sim

import "time"

type linkID struct{ from, to int32 }

// link is the state of one direction between two nodes.
type link struct {
	last  time.Duration // when the last message arrives
	cut   bool
	slow  time.Duration // more delay than the network's
	queue []event       // held back
}

func (e *Engine) link(from, to int) *link {
	id := linkID{int32(from), int32(to)}
	l := e.links[id]
	if l == nil {
		l = new(link)
		e.links[id] = l
	}
	return l
}

// inOrder returns when a message that would arrive at at does arrive, behind all
// that were sent before it.
func (e *Engine) inOrder(from, to int, at time.Duration) time.Duration {
	l := e.link(from, to)
	l.last = max(l.last, at+l.slow)
	return l.last
}

// held keeps a message whose link is cut.
func (e *Engine) held(ev event) bool {
	if len(e.links) == 0 {
		return false
	}
	l := e.links[linkID{ev.from, ev.to}]
	if l == nil || !l.cut {
		return false
	}
	if sender := &e.nodes[ev.from]; !sender.dead && sender.life == ev.sent {
		l.queue = append(l.queue, ev)
	}
	return true
}

// Cut holds back what one node sends another, from now on.
func (e *Engine) Cut(from, to int) {
	e.ordered = true
	e.link(from, to).cut = true
}

// Heal lets what was held back by Cut go on.
func (e *Engine) Heal(from, to int) {
	if l := e.links[linkID{int32(from), int32(to)}]; l != nil && l.cut {
		l.cut = false
		e.release(l)
	}
}

// release sends what a link held back on its way again. It was due earlier than all
// that is still under way; what the link still holds back it takes again.
func (e *Engine) release(l *link) {
	held := l.queue
	l.queue = nil
	for _, ev := range held {
		e.queue.push(e.now, ev)
	}
}

// IsCut reports whether messages from one node to another are held back.
func (e *Engine) IsCut(from, to int) bool {
	l := e.links[linkID{int32(from), int32(to)}]
	return l != nil && l.cut
}

// Slow adds d to the delay from one node to another; 0 ends it.
func (e *Engine) Slow(from, to int, d time.Duration) {
	e.ordered = true
	e.link(from, to).slow = d
}

// Kill ends a node: what was on its way to it is lost, and so is what it could
// not get onto the wire.
func (e *Engine) Kill(n int) {
	e.nodes[n].dead, e.nodes[n].paused = true, false
	e.nodes[n].asleep = nil
	for other := range e.nodes {
		if l := e.links[linkID{int32(n), int32(other)}]; l != nil {
			l.queue = nil
		}
	}
}

// Start begins a new life of a dead node.
func (e *Engine) Start(n int) {
	e.nodes[n].dead = false
	e.nodes[n].life++
}

// Alive reports whether a node runs, paused or not.
func (e *Engine) Alive(n int) bool { return !e.nodes[n].dead }

// Pause stops a node: until Resume it takes in nothing.
func (e *Engine) Pause(n int) { e.nodes[n].paused = !e.nodes[n].dead }

// Paused reports whether a node is paused.
func (e *Engine) Paused(n int) bool { return e.nodes[n].paused }

// Resume lets a paused node take in what waited for it: the messages in order,
// some of the timers when it gets to them, as in a process that wakes up.
func (e *Engine) Resume(n int) {
	node := &e.nodes[n]
	if !node.paused {
		return
	}
	node.paused = false
	for _, ev := range node.asleep {
		if ev.message == nil && e.rand.IntN(2) == 0 {
			ev.seq = 0 // after whatever else there is to do now
		}
		e.queue.push(e.now, ev)
	}
	node.asleep = node.asleep[:0]
}

// clock is a node's view of time.
type clock struct {
	rate  float64 // of the monotonic clock against true time
	since time.Duration
	mono  time.Duration // what it showed then
	step  time.Duration // what the wall clock is ahead of the monotonic one
}

func (c *clock) real(d time.Duration) time.Duration {
	if c.rate == 1 {
		return d
	}
	return time.Duration(float64(d) / c.rate)
}

func (c *clock) read(now time.Duration) time.Duration {
	if c.rate == 1 {
		return c.mono + now - c.since
	}
	return c.mono + time.Duration(float64(now-c.since)*c.rate)
}

// Clock returns what a node's monotonic clock shows.
func (e *Engine) Clock(n int) time.Duration { return e.nodes[n].clock.read(e.now) }

// Wall returns what a node's wall clock shows.
func (e *Engine) Wall(n int) time.Duration { return e.Clock(n) + e.nodes[n].clock.step }

// SetRate lets a node's clocks run so many times as fast as true time. Timers
// that are set already stay where they are.
func (e *Engine) SetRate(n int, rate float64) {
	c := &e.nodes[n].clock
	c.mono, c.since, c.rate = c.read(e.now), e.now, rate
}

// StepWall sets a node's wall clock forward by d, or back.
func (e *Engine) StepWall(n int, d time.Duration) { e.nodes[n].clock.step += d }
