package gateway

import (
	"testing"
	"time"
)

// TestServiceRate: what a client is told follows what is measured, from the first
// admission on, and also when there are none.
func TestServiceRate(t *testing.T) {
	var r serviceRate
	now := time.Unix(1, 0)
	pass := func(d time.Duration) { now = now.Add(d) }
	expect := func(waiting int, want time.Duration) {
		t.Helper()
		if got := r.wait(now, waiting); got.Round(time.Millisecond) != want {
			t.Errorf("with %d in line: %v, want %v", waiting, got, want)
		}
	}
	r.admitted(now, false) // at once: says nothing about the line
	pass(time.Hour)
	r.admitted(now, false)
	expect(0, 0)

	r.begins(now)
	pass(30 * time.Second)
	expect(1, 30*time.Second) // nobody has been admitted yet
	r.begins(now)
	pass(time.Second)
	r.admitted(now, true)
	expect(9, 10*time.Second)
	for range 100 {
		pass(500 * time.Millisecond)
		r.admitted(now, true)
	}
	expect(9, 5*time.Second)
	pass(20 * time.Second) // the line stands still
	expect(9, 24500*time.Millisecond)
	pass(time.Hour)
	r.begins(now) // all have left, one has come
	expect(1, time.Second)
}
