package telemetry

import (
	"sync"
	"time"
)

// windowSlots is the length of the sliding window, in slots of slotLength.
const (
	windowSlots = 60
	slotLength  = time.Second
)

// window keeps the number, sum and maximum of the durations observed in the
// current slot and the windowSlots-1 before it.
type window struct {
	now     func() time.Time
	started time.Time

	mu    sync.Mutex // guards slots
	slots [windowSlots]slot
}

// slot holds what was observed in one second since the start. Its number says
// in which, so that an old slot needs no clearing until it is used again.
type slot struct {
	number int64
	Window
}

// Window sums up the access times of the last 60 seconds.
type Window struct {
	Count    uint64
	Sum, Max time.Duration
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

func (w *window) observe(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := w.current()
	s := &w.slots[number%windowSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.Count++
	s.Sum += d
	s.Max = max(s.Max, d)
}

// totals returns the observations of the whole window.
func (w *window) totals() Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t Window
	oldest := w.current() - windowSlots + 1
	for _, s := range &w.slots {
		if s.number >= oldest {
			t.Count += s.Count
			t.Sum += s.Sum
			t.Max = max(t.Max, s.Max)
		}
	}
	return t
}
