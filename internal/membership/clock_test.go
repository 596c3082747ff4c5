package membership

import (
	"testing"
	"time"
)

// On a machine that does not sleep, the clock of leases goes as all others do.
func TestBootNow(t *testing.T) {
	before, from := time.Now(), bootNow()
	time.Sleep(20 * time.Millisecond)
	got := bootNow().Sub(from)
	if want := time.Since(before); got < 20*time.Millisecond || got > want+time.Millisecond {
		t.Errorf("%v in %v", got, want)
	}
}

// A machine that sleeps stops the clock of the timers, and not that of the lease: when
// it wakes, the next look finds the lease over.
func TestLeaseEndsWhileTheMachineSleeps(t *testing.T) {
	slept := time.Duration(0)
	w := newIncarnation("x", func() time.Time { return time.Now().Add(slept) })
	w.follow(in("x", 7), "a", second)
	r, due, _ := w.renewal()
	if !due || !w.answered(r, nil) || !stands(w) {
		t.Fatal("no standing")
	}
	_, _, wait := w.renewal()
	if wait > second.Interval() {
		t.Errorf("the next look is %v away", wait)
	}
	slept = time.Hour
	if r, due, _ = w.renewal(); !due {
		t.Error("no look at the lease")
	}
	if !w.answered(r, nil) || stands(w) {
		t.Error("the lease outlives an hour's sleep")
	}
}
