package core

import (
	"strings"
	"testing"
	"time"
)

// Gateways that expect each other found one cluster, and all stand in it.
func TestFounding(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		w := started(1, n, time.Second)
		w.trace = new(strings.Builder)
		if !w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) }) {
			t.Errorf("%d hosts are not whole: %v\n%s", n, w.errs, w.trace)
		}
		t.Logf("%d hosts: %v, %d steps", n, w.now, w.steps)
	}
}

// What the loss of a leader costs: the longest time without a new view, while commands are
// asked for all the time.
func TestLosses(t *testing.T) {
	const lease = time.Second
	for _, tt := range []struct {
		name string
		do   func(w *world, l *host)
		most time.Duration // of the mean
	}{
		{"killed", func(w *world, l *host) { l.kill(false) }, 250 * ms},
		{"silent", func(w *world, l *host) { l.kill(true) }, 600 * ms},
		{"it and another silent", func(w *world, l *host) {
			l.kill(true)
			w.other(l).kill(true)
		}, 700 * ms},
		{"keeps one link", func(w *world, l *host) {
			keep := w.other(l)
			for _, h := range w.hosts {
				if h != l && h != keep {
					w.cutBoth(l.i, h.i, true)
				}
			}
		}, 700 * ms},
		{"a hub", func(w *world, l *host) {
			hub := w.other(l)
			for _, a := range w.hosts {
				for _, b := range w.hosts {
					if a != hub && b != hub && a.i < b.i {
						w.cutBoth(a.i, b.i, true)
					}
				}
			}
		}, 1200 * ms},
		{"heard by nobody", func(w *world, l *host) {
			for _, h := range w.hosts {
				if h != l {
					w.setCut(l.i, h.i, true)
				}
			}
		}, 700 * ms},
		{"hears nobody", func(w *world, l *host) {
			for _, h := range w.hosts {
				if h != l {
					w.setCut(h.i, l.i, true)
				}
			}
		}, 900 * ms},
		{"blackout", func(w *world, l *host) {
			for i := range w.hosts {
				for j := range w.hosts {
					if i != j {
						w.setCut(i, j, true)
						w.after(lease/2, func() { w.setCut(i, j, false) })
					}
				}
			}
		}, 900 * ms},
		{"its disk hangs", func(w *world, l *host) { l.hang(true) }, 1500 * ms},
		{"paused", func(w *world, l *host) { l.pause() }, 700 * ms},
	} {
		var sum, worst time.Duration
		const seeds = 30
		for seed := range uint64(seeds) {
			w := started(seed, 5, lease)
			if !w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) }) {
				t.Fatalf("%s, seed %d: not whole: %v", tt.name, seed, w.errs)
			}
			w.hosts[0].define()
			w.runFor(time.Second)
			l := w.leader()
			w.keepProposing(10 * ms)
			w.runFor(time.Duration(w.r.Int64N(int64(lease))))
			w.gap, w.gapped = 0, true
			tt.do(w, l)
			w.runFor(5 * time.Second)
			w.gap = max(w.gap, w.now-w.viewed)
			if len(w.errs) > 0 {
				t.Fatalf("%s, seed %d: %v", tt.name, seed, w.errs)
			}
			sum += w.gap
			worst = max(worst, w.gap)
		}
		t.Logf("%-22s mean %v, worst %v", tt.name, (sum / seeds).Round(ms), worst.Round(ms))
		if sum/seeds > tt.most {
			t.Errorf("%s: %v at the mean, want %v", tt.name, sum/seeds, tt.most)
		}
	}
}

// other returns a host that is not h and runs.
func (w *world) other(h *host) *host {
	for {
		if o := w.hosts[w.r.IntN(len(w.hosts))]; o != h && o.core != nil {
			return o
		}
	}
}

// keepProposing has all hosts set k, in turn.
func (w *world) keepProposing(every time.Duration) {
	k := 1
	var next func()
	next = func() {
		k = k%100 + 1
		for _, h := range w.hosts {
			if h.core != nil && !h.paused {
				if len(h.core.asked) < 5 {
					h.propose(k)
				}
			}
		}
		w.after(every, next)
	}
	next()
}
