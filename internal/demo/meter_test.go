package demo

import (
	"math"
	"testing"
	"time"
)

// TestMeterIntegral checks the integral against one done by hand:
// 1 in flight for 1 s, 3 for 2 s, 2 for 1 s, none for 1 s; k = 2.
func TestMeterIntegral(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMeter(2, func() time.Time { return now })
	after := func(d time.Duration) { now = now.Add(d) }

	m.enter()
	after(time.Second)
	m.enter()
	m.enter()
	after(2 * time.Second)
	m.leave(true)
	after(time.Second)
	m.leave(false)
	m.leave(true)
	after(time.Second)

	got := m.stats()
	want := Stats{Max: 3, Served: 2, Aborted: 1, Busy: (1 + 2*2 + 2) / 5.0 / 2, Elapsed: 5 * time.Second}
	if math.Abs(got.Busy-want.Busy) > 1e-12 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got.Busy = want.Busy
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestMeterReset: a new window keeps the requests in flight and no counts.
func TestMeterReset(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMeter(2, func() time.Time { return now })
	m.enter()
	m.enter()
	m.enter()
	m.leave(true)
	now = now.Add(time.Hour)
	m.reset()
	now = now.Add(time.Second)
	want := Stats{InFlight: 2, Max: 2, Busy: 1, Elapsed: time.Second}
	if got := m.stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
