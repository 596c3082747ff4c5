package demo

import (
	"sync"
	"time"
)

// Stats holds an upstream's counts since it was made or last Reset.
type Stats struct {
	// InFlight requests now.
	InFlight int `json:"in_flight"`
	// Max is the most that were ever in flight at once.
	Max int `json:"max"`
	// Served counts requests answered in full, Aborted requests whose client left before.
	Served  int64 `json:"served"`
	Aborted int64 `json:"aborted"`
	// Busy is the time average of min(in flight, K)/K: the fraction of the
	// slots in use. 0 if the upstream was not told K.
	Busy float64 `json:"busy"`
	// Elapsed is the length of the window.
	Elapsed time.Duration `json:"elapsed_ns"`
}

// meter counts concurrency and integrates it over time, exactly. It is safe
// for concurrent use.
type meter struct {
	k   int
	now func() time.Time

	mu       sync.Mutex
	start    time.Time // of the window
	last     time.Time // up to here the integral reaches
	inFlight int
	max      int
	served   int64
	aborted  int64
	busyArea float64 // integral of min(inFlight, k), in request-nanoseconds
}

func newMeter(k int, now func() time.Time) *meter {
	t := now()
	return &meter{k: k, now: now, start: t, last: t}
}

// advance integrates up to now. The clock is read under the lock: read before
// it, two callers could advance out of order.
func (m *meter) advance() {
	t := m.now()
	d := float64(t.Sub(m.last))
	m.busyArea += d * float64(min(m.inFlight, m.k))
	m.last = t
}

func (m *meter) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.inFlight++
	m.max = max(m.max, m.inFlight)
}

func (m *meter) leave(served bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.inFlight--
	if served {
		m.served++
	} else {
		m.aborted++
	}
}

// reset begins a new window. Requests in flight stay so.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.start = m.last
	m.max = m.inFlight
	m.served, m.aborted = 0, 0
	m.busyArea = 0
}

func (m *meter) stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	s := Stats{
		InFlight: m.inFlight,
		Max:      m.max,
		Served:   m.served,
		Aborted:  m.aborted,
		Elapsed:  m.last.Sub(m.start),
	}
	if s.Elapsed > 0 && m.k > 0 {
		s.Busy = m.busyArea / float64(s.Elapsed) / float64(m.k)
	}
	return s
}
