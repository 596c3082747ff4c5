package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

// A late timer counts for as long as it was late within the time that is asked for.
func TestBetween(t *testing.T) {
	m := new(Meter)
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	m.note(at(5), at(6)) // as usual
	m.note(at(10), at(30))
	m.note(at(100), at(400))
	for _, c := range []struct{ from, to, want int }{
		{0, 500, 320}, {20, 500, 310}, {30, 500, 300}, {399, 500, 1}, {400, 500, 0}, {0, 100, 20}, {0, 101, 21}, {15, 16, 1},
	} {
		if got := m.Between(at(c.from), at(c.to)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("between %d and %d ms: %v, want %d ms", c.from, c.to, got, c.want)
		}
	}
	for length, want := range map[int]time.Duration{1: 300, 369: 300, 370: 320} {
		if got := m.Worst(begin, time.Duration(length)*time.Millisecond); got != want*time.Millisecond {
			t.Errorf("within %d ms: %v, want %d ms", length, got, want)
		}
	}
	if got := m.Worst(at(31), time.Second); got != 300*time.Millisecond {
		t.Errorf("the last one took %v", got)
	}
}

// On a machine without a fault the meter finds none.
func TestNothingStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := Start()
		time.Sleep(time.Second)
		m.Stop()
		if got := m.Between(began, time.Now()); got != 0 {
			t.Errorf("%v", got)
		}
	})
}
