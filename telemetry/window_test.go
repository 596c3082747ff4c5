package telemetry

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clock is a clock that only the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func observe(w *window, d time.Duration) { w.observe(w.now().Sub(w.started), d) }

func TestWindowSlides(t *testing.T) {
	c := newClock()
	w := newWindow(c.Now, c.Now())
	observe(w, 5*time.Second)
	c.Advance(30 * time.Second)
	observe(w, time.Second)
	if got := w.totals(); got != (Window{Count: 2, Sum: 6 * time.Second, Max: 5 * time.Second}) {
		t.Errorf("%+v", got)
	}
	c.Advance(30*time.Second - time.Nanosecond) // 60 s less 1 ns after the first
	if got := w.totals(); got.Count != 2 {
		t.Errorf("after 60 s less 1 ns: %+v", got)
	}
	c.Advance(time.Nanosecond)
	if got := w.totals(); got != (Window{Count: 1, Sum: time.Second, Max: time.Second}) {
		t.Errorf("after 60 s: %+v", got)
	}
	c.Advance(time.Hour)
	if got := w.totals(); got != (Window{}) || got.Mean() != 0 {
		t.Errorf("after an hour: %+v", got)
	}
	observe(w, 2*time.Second)
	if got := w.totals(); got.Count != 1 || got.Mean() != 2*time.Second {
		t.Errorf("a slot that is used again: %+v", got)
	}
}

// TestWindowAgainstList compares with a plain list of observations, and checks
// the promise: counted for at least 59 s, at most 60.
func TestWindowAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		start := c.Now()
		w := newWindow(c.Now, start)
		type observation struct {
			at time.Time
			d  time.Duration
		}
		var all []observation
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			c.Advance(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "advance")))
			if rapid.Bool().Draw(t, "observe") {
				d := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "d"))
				observe(w, d)
				all = append(all, observation{c.Now(), d})
			}
			var want, least, most Window
			add := func(w *Window, d time.Duration) {
				w.Count, w.Sum, w.Max = w.Count+1, w.Sum+d, max(w.Max, d)
			}
			for _, o := range all {
				age := c.Now().Sub(o.at)
				if c.Now().Sub(start)/time.Second-o.at.Sub(start)/time.Second < 60 {
					add(&want, o.d)
				}
				if age < 59*time.Second {
					add(&least, o.d)
				}
				if age <= 60*time.Second {
					add(&most, o.d)
				}
			}
			got := w.totals()
			if got != want || got.Count < least.Count || got.Count > most.Count || got.Max < least.Max || got.Max > most.Max {
				t.Fatalf("got %+v, want %+v, between %+v and %+v", got, want, least, most)
			}
		}
	})
}

// TestWindowPast: past returns for an earlier moment what totals returned then.
func TestWindowPast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step, n = 10 * time.Second, 90
		c := newClock()
		w := newWindow(c.Now, c.Now())
		var told []Window
		var last time.Time
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "observations") {
				observe(w, time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms"))*time.Millisecond)
			}
			last = c.Now()
			told = append(told, w.totals())
			c.Advance(step)
		}
		past := w.past(last, step, n)
		for i := range n {
			var want Window
			// One step has passed since the last: the oldest is kept no more.
			if j := len(told) - n + i; j >= 0 && i > 0 {
				want = told[j]
			}
			if past[i] != want {
				t.Fatalf("%d of %d: %+v, it was %+v", i, n, past[i], want)
			}
		}
	})
}
