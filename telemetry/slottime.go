package telemetry

import (
	"sync"
	"time"
)

// slotTime adds up how long slots were in use. Between two readings, whenever they are taken, the sum
// grows by exactly the mean number of slots in use times the time between; a gauge could only sample
// it.
type slotTime struct {
	began time.Time

	mu    sync.Mutex // guards the rest
	inUse int
	since time.Time
	sum   time.Duration
}

// set notes that inUse slots are in use from now on, and reports whether these are more than before.
func (s *slotTime) set(now time.Time, inUse int) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	more = inUse > s.inUse
	s.inUse = inUse
	return more
}

func (s *slotTime) total(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	return s.sum
}

// advance adds the time until now. Callers read the clock before they have the lock,
// so now may be a little before since. The caller holds the lock.
func (s *slotTime) advance(now time.Time) {
	if d := now.Sub(s.since); d > 0 {
		s.sum += time.Duration(s.inUse) * d
		s.since = now
	}
}
