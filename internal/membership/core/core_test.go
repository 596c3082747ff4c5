package core

import (
	"flag"
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
		seeds := uint64(4)
		if *figures {
			seeds = 30
		}
		for seed := range seeds {
			w := started(seed, 5, lease)
			if !w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) }) {
				t.Fatalf("%s, seed %d: not whole: %v", tt.name, seed, w.errs)
			}
			w.hosts[0].define()
			w.runFor(time.Second)
			l := w.leader()
			w.keepProposing(20 * ms)
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
		t.Logf("%-22s mean %v, worst %v", tt.name, (sum / time.Duration(seeds)).Round(ms), worst.Round(ms))
		if mean := sum / time.Duration(seeds); mean > tt.most {
			t.Errorf("%s: %v at the mean, want %v", tt.name, mean, tt.most)
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

var figures = flag.Bool("core.figures", false, "take 30 seeds for each figure")

// Where round trips are long, nothing is elected and no lease is lost.
func TestLongRoundTrips(t *testing.T) {
	for _, trip := range []time.Duration{300 * ms, 600 * ms} {
		w := started(1, 5, 3*time.Second)
		w.delay = trip / 2
		if !w.runUntil(time.Minute, func() bool { return w.whole(w.hosts...) }) {
			t.Fatalf("%v: not whole: %v %s", trip, w.errs, w.state())
		}
		w.trace = new(strings.Builder)
		at, elected, view := w.now, len(w.leaders), w.newest
		w.runFor(5 * time.Minute)
		if len(w.leaders) != elected || w.newest != view || len(w.errs) > 0 || !w.whole(w.hosts...) {
			t.Errorf("%v: %d elections, view %d became %d, %v\n%.3000s", trip, len(w.leaders)-elected, view, w.newest, w.errs, w.trace)
		}
		t.Logf("%v: whole after %v", trip, at.Round(ms))
	}
}

// With slow disks and constant writes the leader stays.
func TestSlowDisks(t *testing.T) {
	for _, write := range []time.Duration{60 * ms, 100 * ms, 200 * ms} {
		var worst time.Duration
		elected := 0
		for seed := range uint64(5) {
			w := started(seed, 5, 3*time.Second)
			for _, h := range w.hosts {
				h.write = write
			}
			if !w.runUntil(time.Minute, func() bool { return w.whole(w.hosts...) }) {
				t.Fatalf("%v: not whole: %v %s", write, w.errs, w.state())
			}
			w.hosts[0].define()
			w.runFor(3 * time.Second)
			w.keepProposing(50 * ms)
			before := len(w.leaders)
			w.runFor(30 * time.Second)
			elected += len(w.leaders) - before
			l := w.leader()
			w.runFor(time.Duration(w.r.Int64N(int64(time.Second))))
			w.gap, w.gapped = 0, true
			l.kill(false)
			w.runFor(10 * time.Second)
			worst = max(worst, w.gap, w.now-w.viewed)
			if len(w.errs) > 0 {
				t.Fatal(w.errs)
			}
		}
		t.Logf("writes of %v: %d elections in 150 s, a leader killed: %v at worst", write, elected, worst.Round(ms))
		if elected > 0 || worst > 5*time.Second {
			t.Errorf("writes of %v: %d elections, %v at worst", write, elected, worst)
		}
	}
}

// As long as one link alone does not carry, in one direction or both, all but one go on.
func TestOneLink(t *testing.T) {
	const lease = time.Second
	for a := range 5 {
		for b := range 5 {
			if a == b {
				continue
			}
			w := started(uint64(5*a+b), 5, lease)
			if !w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) }) {
				t.Fatalf("not whole: %v", w.errs)
			}
			w.setCut(a, b, true)
			if a < b {
				w.setCut(b, a, true)
			}
			w.runFor(5 * lease)
			stand := 0
			for _, h := range w.hosts {
				if h.stands() {
					stand++
				}
			}
			if stand < 4 || len(w.errs) > 0 {
				t.Errorf("%d to %d: %d stand, %v\n%s", a, b, stand, w.errs, w.state())
			}
			before := len(w.leaders)
			w.runFor(10 * lease)
			if len(w.leaders) != before {
				t.Errorf("%d to %d: %d elections more", a, b, len(w.leaders)-before)
			}
		}
	}
}

// However gateways come and go, an odd number of them votes.
func TestVotesAreOdd(t *testing.T) {
	w := started(1, 5, time.Second)
	check := func() {
		for _, h := range w.hosts {
			if h.core != nil && len(h.core.Voters())%2 == 0 && len(h.core.Voters()) > 0 {
				t.Fatalf("an even number of voters at %s: %x", h.name, h.core.Voters())
			}
		}
	}
	for _, h := range w.hosts[1:] {
		h.expect, h.joining = 1, true
	}
	w.hosts[0].expect = 1
	whole := func() bool { check(); return w.whole(w.hosts...) && len(w.leader().core.Voters()) == 5 }
	if !w.runUntil(20*time.Second, whole) {
		t.Fatalf("not whole: %v %s", w.errs, w.state())
	}
	w.hosts[3].kill(false)
	w.runUntil(w.now+5*time.Second, func() bool { check(); return false })
	w.hosts[3].start()
	if !w.runUntil(w.now+20*time.Second, whole) {
		t.Fatalf("not whole again: %v %s", w.errs, w.state())
	}
}

// The only voter of two gateways hands its vote and the lead over when it leaves.
func TestPairLeaves(t *testing.T) {
	w := started(1, 2, time.Second)
	if !w.runUntil(20*time.Second, func() bool { return w.whole(w.hosts...) }) {
		t.Fatalf("not whole: %v", w.errs)
	}
	l := w.leader()
	other := w.other(l)
	began := w.now
	l.step(Leave{})
	if !w.runUntil(w.now+5*time.Second, func() bool { return l.left && w.whole(other) && len(other.core.Voters()) == 1 }) {
		t.Fatalf("%v %s", w.errs, w.state())
	}
	t.Logf("after %v", (w.now - began).Round(ms))
}

// A leader that was stopped, and wakes when another one leads, extends no lease: not even that of a
// member that reaches nobody else.
func TestDeposedLeader(t *testing.T) {
	const lease = time.Second
	expired := 0
	for seed := range uint64(20) {
		w := started(seed, 5, lease)
		if !w.runUntil(20*time.Second, func() bool { return w.whole(w.hosts...) }) {
			t.Fatalf("not whole: %v", w.errs)
		}
		l := w.leader()
		x := w.other(l)
		node := x.stand.Node
		l.pause()
		w.after(time.Duration(w.r.Int64N(int64(lease/4)))+lease*6/10, l.resume)
		for _, h := range w.hosts {
			if h != l && h != x {
				w.cutBoth(x.i, h.i, true)
				w.cutBoth(l.i, h.i, true)
			}
		}
		w.runFor(4 * lease)
		if len(w.errs) > 0 {
			t.Fatalf("seed %d: %v", seed, w.errs)
		}
		if _, over := w.expired[node]; over {
			expired++
		}
	}
	if expired < 10 {
		t.Errorf("%d of 20 leases are over: that shows nothing", expired)
	}
}

// A process may end after any write: before raft knows that it is on disk, and with what came behind it
// lost. Nothing that was agreed on is, and all go on.
func TestCrashAtEveryWrite(t *testing.T) {
	crashes := 0
	for i := range 3 {
		for at := 1; ; at++ {
			w := started(uint64(at), 3, 500*ms)
			h := w.hosts[i]
			h.crashAt = at
			w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) })
			w.hosts[0].define()
			for k := range 12 {
				w.propose(k + 2)
				w.runFor(50 * ms)
			}
			if h.writes < at {
				break // there are no more
			}
			crashes++
			if !w.runUntil(w.now+15*time.Second, func() bool { return w.whole(w.hosts...) }) || len(w.errs) > 0 {
				t.Fatalf("%s ends after write %d: %v %s", h.name, at, w.errs, w.state())
			}
			h.crashAt = 0
		}
	}
	t.Logf("%d crashes", crashes)
	if crashes < 60 {
		t.Errorf("%d crashes are few", crashes)
	}
}

// propose has some host that runs set k.
func (w *world) propose(k int) {
	for _, h := range w.hosts {
		if h.core != nil {
			h.propose(k)
			return
		}
	}
}

// Many gateways come in one after the other, and rest.
func TestForty(t *testing.T) {
	w := started(1, 40, 3*time.Second)
	for _, h := range w.hosts {
		h.expect = 3
	}
	for _, h := range w.hosts[3:] {
		h.expect, h.joining = 1, true
	}
	if !w.runUntil(60*time.Second, func() bool { return w.whole(w.hosts...) }) {
		t.Fatalf("not whole: %v %.2000s", w.errs, w.state())
	}
	at, elected, steps := w.now, len(w.leaders), w.steps
	w.runFor(30 * time.Second)
	t.Logf("whole after %v; %d steps of all in a second of rest", at.Round(ms), (w.steps-steps)/30)
	if len(w.leaders) != elected || !w.whole(w.hosts...) {
		t.Errorf("%d elections, %s", len(w.leaders)-elected, w.state())
	}
}

// A gateway whose renewals are late forgets its leader, and renews with it all the same.
func TestForgottenLeader(t *testing.T) {
	const lease = time.Second
	w := started(1, 5, lease)
	if !w.runUntil(20*time.Second, func() bool { return w.whole(w.hosts...) }) {
		t.Fatalf("not whole: %v", w.errs)
	}
	l := w.leader()
	x := w.other(l)
	w.setCut(x.i, l.i, true)
	w.runFor(lease * 7 / 10)
	w.setCut(x.i, l.i, false)
	if !w.runUntil(w.now+5*lease, func() bool { return w.whole(w.hosts...) }) || w.leader() != l {
		t.Errorf("not whole: %v %s", w.errs, w.state())
	}
}

// A new leader counts no lease as over that the one before may have granted.
func TestLeasesOfTheLeaderBefore(t *testing.T) {
	const lease = time.Second
	for seed := range uint64(10) {
		w := started(seed, 5, lease)
		if !w.runUntil(20*time.Second, func() bool { return w.whole(w.hosts...) }) {
			t.Fatalf("not whole: %v", w.errs)
		}
		l := w.leader()
		x := w.other(l)
		for _, h := range w.hosts {
			if h != l && h != x {
				w.cutBoth(x.i, h.i, true)
			}
		}
		w.runFor(lease)
		l.kill(false)
		w.runFor(3 * lease)
		if len(w.errs) > 0 {
			t.Fatalf("seed %d: %v", seed, w.errs)
		}
	}
}
