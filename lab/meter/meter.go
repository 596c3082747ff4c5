package meter

import (
	"time"
)

// Meter is told what happens in a run. Make it with [New].
type Meter struct {
	k       int
	from    time.Duration // what came in earlier is not counted
	last    time.Duration
	waiting int
	running int
	order   *order
	r       Result
	entered time.Duration // when the last entry was, or the counting began
	turns   float64       // sum of waits, in seconds, each times its number among the entries
}

// Result is what a run was like. The counts are of the time after the warm-up.
type Result struct {
	// Measured is the time that the counts are about.
	Measured time.Duration
	// Entries is how many requests came into the critical section, Left how
	// many left the line before.
	Entries, Left uint64
	// Wait is the time from a request to its critical section.
	Wait Histogram
	// Rise is how much longer waits were at the end than at the beginning, by the straight line
	// that fits them best, in mean waits: about 0 if the line is steady, almost 2 if it grows all
	// the time.
	Rise float64
	// NodeMax is each node's longest wait.
	NodeMax []time.Duration
	// NodeLast is when each node came into the critical section last; 0: never.
	NodeLast []time.Duration
	// Lull is the longest time without an entry.
	Lull time.Duration
	// Oldest is the age of the oldest request that still waited at the end.
	Oldest time.Duration
	// Messages counts messages by type, in order of first use.
	Messages Counts
	// Hops is how many nodes forwarded a request, in sum.
	Hops uint64
	// Busy is the token time used, Idle that which was not although
	// requests waited.
	Busy, Idle time.Duration
	// Inversions counts pairs of requests of which the younger came in first;
	// Overtakes the requests that came in before an older one.
	Inversions, Overtakes uint64
	// Gap is the largest difference in age between a request that came in and the
	// oldest that waited then.
	Gap time.Duration
	// MaxRunning is the most requests in the critical section at once.
	MaxRunning int
	// Events is how many events the engine ran, warm-up included.
	Events uint64
}

// Count says how many messages of a type there were.
type Count struct {
	Type string
	N    uint64
}

// Counts are the counts of several types, in order of first use.
type Counts []Count

// Add counts a message.
func (c *Counts) Add(kind string) {
	for i := range *c {
		if (*c)[i].Type == kind {
			(*c)[i].N++
			return
		}
	}
	*c = append(*c, Count{Type: kind, N: 1})
}

// Of returns how many messages of a type there were.
func (c Counts) Of(kind string) uint64 {
	for _, one := range c {
		if one.Type == kind {
			return one.N
		}
	}
	return 0
}

// Sum returns how many messages there were in all.
func (c Counts) Sum() (n uint64) {
	for _, one := range c {
		n += one.N
	}
	return n
}

// New returns the meter of a run with k tokens that counts from an instant on.
func New(nodes, k int, from time.Duration) *Meter {
	return &Meter{k: k, from: from, last: from, entered: from, order: newOrder(), r: Result{NodeMax: make([]time.Duration, nodes), NodeLast: make([]time.Duration, nodes)}}
}

// advance brings the integrals over time to now.
func (m *Meter) advance(now time.Duration) {
	if now <= m.last {
		return
	}
	d := now - m.last
	m.last = now
	m.r.Busy += time.Duration(m.running) * d
	m.r.Idle += time.Duration(max(0, min(m.k-m.running, m.waiting))) * d
}

// Arrived notes a request and numbers it.
func (m *Meter) Arrived(now time.Duration) uint64 {
	m.advance(now)
	m.waiting++
	return m.order.arrive(now)
}

// Entered notes that request n of a node came into the critical section.
func (m *Meter) Entered(now time.Duration, n uint64, node int, since time.Duration) {
	m.advance(now)
	m.waiting--
	m.running++
	m.r.MaxRunning = max(m.r.MaxRunning, m.running)
	older, gap := m.order.leave(n)
	if now < m.from {
		return
	}
	wait := now - since
	m.r.Lull, m.entered = max(m.r.Lull, now-m.entered), now
	m.r.Entries++
	m.r.Wait.Add(wait)
	m.turns += float64(m.r.Entries) * wait.Seconds()
	m.r.NodeMax[node] = max(m.r.NodeMax[node], wait)
	m.r.NodeLast[node] = now
	if older > 0 {
		m.r.Inversions += uint64(older)
		m.r.Overtakes++
		m.r.Gap = max(m.r.Gap, gap)
	}
}

// Ended notes the end of a critical section.
func (m *Meter) Ended(now time.Duration) {
	m.advance(now)
	m.running--
}

// GaveUp notes that request n left the line.
func (m *Meter) GaveUp(now time.Duration, n uint64) {
	m.advance(now)
	m.waiting--
	m.order.leave(n)
	if now >= m.from {
		m.r.Left++
	}
}

// Sent notes a message.
func (m *Meter) Sent(now time.Duration, kind string) {
	if now >= m.from {
		m.r.Messages.Add(kind)
	}
}

// Found notes that a request has found its place after so many hops.
func (m *Meter) Found(now time.Duration, hops int) {
	if now >= m.from {
		m.r.Hops += uint64(hops)
	}
}

// Result ends the measuring.
func (m *Meter) Result(now time.Duration) *Result {
	m.advance(now)
	m.r.Measured, m.r.Lull = max(0, now-m.from), max(m.r.Lull, now-m.entered)
	if n, mean := float64(m.r.Entries), m.r.Wait.Mean().Seconds(); n > 1 && mean > 0 {
		m.r.Rise = 12 * (m.turns/(n*mean) - (n+1)/2) / n
	}
	return &m.r
}

// Entries returns how many requests have been counted so far.
func (m *Meter) Entries() uint64 { return m.r.Entries }

// MessagesPerEntry returns what an entry cost.
func (r *Result) MessagesPerEntry() float64 { return r.perEntry(r.Messages.Sum()) }

// HopsPerEntry returns how far a request went on average.
func (r *Result) HopsPerEntry() float64 { return r.perEntry(r.Hops) }

func (r *Result) perEntry(n uint64) float64 {
	if r.Entries == 0 {
		return 0
	}
	return float64(n) / float64(r.Entries)
}
