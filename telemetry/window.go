package telemetry

import (
	"sync"
	"time"
)

// The sliding window is windowSlots long, in slots of slotLength. Its past is
// kept for the last keptSlots.
const (
	windowSlots = 60
	keptSlots   = 15 * 60
	slotLength  = time.Second
)

// window keeps the number, sum and maximum of the durations observed in the
// current slot and the keptSlots-1 before it, and in as many more as the oldest
// window needs.
type window struct {
	now     func() time.Time
	started time.Time

	mu    sync.Mutex // guards slots
	slots [keptSlots + windowSlots]slot
}

// slot holds the observations of one second. Its number says which second since the start, so that an
// old slot need not be cleared until it is used again.
type slot struct {
	number int64
	Window
}

// Window sums up the waits of the requests admitted in 60 seconds.
type Window struct {
	Count    uint64
	Sum, Max time.Duration
	// Waiting is how long the oldest request that still waited at the end of the window had
	// waited; 0: none did, or it is not known.
	Waiting time.Duration
}

// Mean returns the mean access time; 0 if there was none.
func (w Window) Mean() time.Duration {
	if w.Count == 0 {
		return 0
	}
	return time.Duration(float64(w.Sum) / float64(w.Count))
}

func newWindow(now func() time.Time, started time.Time) *window {
	return &window{now: now, started: started}
}

// current returns the number of the slot that the clock is in. The caller
// holds mu: so time, as the window sees it, does not run backwards.
func (w *window) current() int64 { return int64(w.now().Sub(w.started) / slotLength) }

// observe adds what was observed at, after the start.
func (w *window) observe(at, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.slot(int64(at / slotLength))
	s.Count++
	s.Sum += d
	s.Max = max(s.Max, d)
}

// waiting notes how long the oldest waiting request has waited.
func (w *window) waiting(oldest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slot(w.current()).Waiting = oldest
}

// slot returns a slot that is current, or was a moment ago. The caller holds mu.
func (w *window) slot(number int64) *slot {
	s := &w.slots[number%int64(len(w.slots))]
	if s.number < number {
		*s = slot{number: number}
	}
	return s
}

// totals returns the observations of the whole window.
func (w *window) totals() Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until(w.current())
}

// until returns the observations of the window that ends with slot last. The caller holds mu.
func (w *window) until(last int64) Window {
	var t Window
	for number := max(0, last-windowSlots+1); number <= last; number++ {
		s := &w.slots[number%int64(len(w.slots))]
		if s.number == number {
			t.Count += s.Count
			t.Sum += s.Sum
			t.Max = max(t.Max, s.Max)
		}
	}
	// The newest slot may not have been told yet.
	for number := last; number >= max(0, last-1) && t.Waiting == 0; number-- {
		if s := &w.slots[number%int64(len(w.slots))]; s.number == number {
			t.Waiting = s.Waiting
		}
	}
	return t
}

// past returns the window as it was at n times, step apart, the newest not after last. Windows that
// are not kept are empty.
func (w *window) past(last time.Time, step time.Duration, n int) []Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Window, n)
	newest := w.current()
	for i := range out {
		at := last.Add(-time.Duration(n-1-i) * step)
		number := int64(at.Sub(w.started) / slotLength)
		if at.Before(w.started) || number > newest || number <= newest-keptSlots {
			continue
		}
		out[i] = w.until(number)
	}
	return out
}
