package core_test

import (
	"flag"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/lab/hosts"
)

var figures = flag.Bool("core.figures", false, "take many seeds for each figure")

// What the loss of a leader costs: the longest time without a new view, while commands are
// asked for all the time.
func TestLosses(t *testing.T) {
	for _, tt := range losses {
		var sum, worst time.Duration
		seeds := uint64(4)
		if *figures {
			seeds = 30
		}
		for seed := range seeds {
			w := started(t, seed, 5, time.Second)
			w.define()
			w.run(time.Second)
			l := w.Leader()
			w.keepProposing(20 * ms)
			w.run(w.random(w.lease))
			w.gap = 0
			tt.do(w, l)
			w.run(5 * time.Second)
			gap := max(w.gap, w.Now()-w.viewed)
			sum += gap
			worst = max(worst, gap)
		}
		mean := (sum / time.Duration(seeds)).Round(ms)
		t.Logf("%-22s mean %v, worst %v", tt.name, mean, worst.Round(ms))
		if mean > tt.most {
			t.Errorf("%s: %v at the mean, want %v", tt.name, mean, tt.most)
		}
	}
}

var losses = []struct {
	name string
	do   func(w *world, l *hosts.Host)
	most time.Duration // of the mean
}{
	{"killed", func(_ *world, l *hosts.Host) { l.Kill() }, 250 * ms},
	{"silent", func(_ *world, l *hosts.Host) { l.Crash() }, 600 * ms},
	{"it and another silent", func(w *world, l *hosts.Host) { l.Crash(); w.other(l).Crash() }, 700 * ms},
	{"keeps one link", func(w *world, l *hosts.Host) {
		keep := w.other(l)
		for _, h := range w.hosts {
			if h != l && h != keep {
				apart(l, h, w.Cut)
			}
		}
	}, 700 * ms},
	{"a hub", func(w *world, l *hosts.Host) {
		hub := w.other(l)
		for i, a := range w.hosts {
			for _, b := range w.hosts[i+1:] {
				if a != hub && b != hub {
					apart(a, b, w.Cut)
				}
			}
		}
	}, 1200 * ms},
	{"heard by nobody", func(w *world, l *hosts.Host) {
		for _, h := range w.hosts {
			if h != l {
				w.Cut(l.Index, h.Index)
			}
		}
	}, 700 * ms},
	{"hears nobody", func(w *world, l *hosts.Host) {
		for _, h := range w.hosts {
			if h != l {
				w.Cut(h.Index, l.Index)
			}
		}
	}, 900 * ms},
	{"blackout", func(w *world, _ *hosts.Host) {
		for i, a := range w.hosts {
			for _, b := range w.hosts[i+1:] {
				apart(a, b, w.Cut)
				w.after(w.lease/2, func() { apart(a, b, w.Heal) })
			}
		}
	}, 900 * ms},
	{"its disk hangs", func(_ *world, l *hosts.Host) { l.Hang() }, 1500 * ms},
	{"paused", func(_ *world, l *hosts.Host) { l.Pause() }, 700 * ms},
}

// Of three, one is out, since its link to another is broken, and was started again. Then all packets of the leader are slow,
// and that link is mended: the two that are near to each other serve without the leader.
func TestFarLeaderKeepsNobodyOut(t *testing.T) {
	for seed := range uint64(20) {
		w := started(t, seed, 3, time.Second)
		l := w.Leader()
		a := w.other(l)
		b := w.hosts[3-l.Index-a.Index]
		apart(a, b, w.Cut)
		w.run(3 * w.lease)
		a.Kill()
		w.run(w.random(w.lease))
		a.Start()
		w.run(3 * w.lease)
		for _, h := range []*hosts.Host{a, b} {
			apart(l, h, func(from, to int) { w.Slow(from, to, w.lease*23/100) })
		}
		w.run(w.random(2 * w.lease))
		apart(a, b, w.Heal)
		w.until(6*w.lease, func() bool { return a.Stands() && b.Stands() && w.Leader() != l })
	}
}

// Whatever the leader alone suffers, and where all suffer it for a moment, the others elect another one and keep their leases.
func TestOthersKeepTheirLeases(t *testing.T) {
	slow := func(part time.Duration, from, to bool) func(w *world, l *hosts.Host) {
		return func(w *world, l *hosts.Host) {
			for _, h := range w.hosts {
				if h != l && from {
					w.Slow(l.Index, h.Index, w.lease/part)
				}
				if h != l && to {
					w.Slow(h.Index, l.Index, w.lease/part)
				}
			}
		}
	}
	faults := map[string]func(w *world, l *hosts.Host){
		"slow":                  slow(3, true, true),
		"a little slow":         slow(5, true, true),
		"what it sends is late": slow(3, true, false),
		"what it gets is late":  slow(2, false, true),
	}
	for _, tt := range losses {
		switch tt.name {
		case "keeps one link", "a hub", "it and another silent": // then others go, too
		default:
			faults[tt.name] = tt.do
		}
	}
	seeds := uint64(3)
	if *figures {
		seeds = 100
	}
	for name, do := range faults {
		worlds, lost := 0, 0
		for _, lease := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
			for _, n := range []int{3, 5, 9} {
				for seed := range seeds {
					worlds++
					w := started(t, seed, n, lease)
					w.run(w.lease + w.random(w.lease))
					l := w.Leader()
					do(w, l)
					if !w.keepLeases(l, 3*lease) {
						lost++
					}
				}
			}
		}
		t.Logf("%s: others have lost their leases in %d of %d worlds", name, lost, worlds)
		if 20*lost > worlds { // two may stand for election at once, again and again
			t.Errorf("%s: too many", name)
		}
	}
}

// keepLeases lets time pass, and reports whether all but one have kept their leases.
func (w *world) keepLeases(but *hosts.Host, during time.Duration) bool {
	for end := w.Now() + during; w.step(end); {
		for _, h := range w.hosts {
			if h != but && !h.Stands() {
				return false
			}
		}
	}
	return true
}

// Where round trips are long, nothing is elected and no lease is lost.
func TestLongRoundTrips(t *testing.T) {
	for _, trip := range []time.Duration{300 * ms, 600 * ms} {
		w := newWorld(t, 1, 5, 3*time.Second, trip/2, nil)
		for _, h := range w.hosts {
			h.Start()
		}
		w.until(time.Minute, func() bool { return w.whole(w.hosts...) })
		at, elected, view := w.Now(), w.Elected(), w.number
		w.run(5 * time.Minute)
		if w.Elected() != elected || w.number != view || !w.whole(w.hosts...) {
			t.Errorf("%v: %d elections, view %d became %d%s", trip, w.Elected()-elected, view, w.number, w.state())
		}
		t.Logf("%v: whole after %v", trip, at.Round(ms))
	}
}

// A voter with a fast disk gives those with slow ones the time to vote.
func TestUnequalDisks(t *testing.T) {
	for _, tt := range []struct {
		lease, write, most time.Duration
		n, fast            int
	}{
		{time.Second, 200 * ms, 6 * time.Second, 5, 2},
		{time.Second, 200 * ms, 6 * time.Second, 5, 1},
		{time.Second, 150 * ms, 6 * time.Second, 3, 2},
		{3 * time.Second, 400 * ms, 12 * time.Second, 5, 2},
	} {
		var whole, next time.Duration
		for seed := range uint64(10) {
			w := newWorld(t, seed, tt.n, tt.lease, ms, nil)
			for i, h := range w.hosts {
				if i >= tt.fast {
					h.Write = tt.write
				}
				w.after(w.random(300*ms), h.Start)
			}
			w.until(tt.most, func() bool { return w.whole(w.hosts...) })
			whole = max(whole, w.Now())
			w.run(2 * tt.lease)
			l, killed := w.Leader(), w.Now()
			l.Kill()
			w.until(tt.most, func() bool { _, in := w.View().Named(l.Name); return !in })
			next = max(next, w.Now()-killed)
		}
		t.Logf("lease %v, %d of %d disks fast, the others %v: whole after %v, a killed leader is out after %v, at worst", tt.lease, tt.fast, tt.n, tt.write, whole.Round(ms), next.Round(ms))
	}
}

// With slow disks and constant writes the leader stays.
func TestSlowDisks(t *testing.T) {
	seeds := uint64(5)
	if testing.Short() {
		seeds = 2
	}
	for _, write := range []time.Duration{60 * ms, 100 * ms, 200 * ms} {
		var worst time.Duration
		elected := 0
		for seed := range seeds {
			w := newWorld(t, seed, 5, 3*time.Second, ms, nil)
			for _, h := range w.hosts {
				h.Write = write
				h.Start()
			}
			w.until(time.Minute, func() bool { return w.whole(w.hosts...) })
			w.define()
			w.run(3 * time.Second)
			w.keepProposing(50 * ms)
			before := w.Elected()
			w.run(30 * time.Second)
			elected += w.Elected() - before
			l := w.Leader()
			w.run(w.random(time.Second))
			w.gap = 0
			l.Kill()
			w.run(10 * time.Second)
			worst = max(worst, w.gap, w.Now()-w.viewed)
		}
		t.Logf("writes of %v: %d elections in %d s, a leader killed: %v at worst", write, elected, 30*seeds, worst.Round(ms))
		if elected > 0 || worst > 5*time.Second {
			t.Errorf("writes of %v: %d elections, %v at worst", write, elected, worst)
		}
	}
}

// How long disks have hung makes no later election slower.
func TestDisksHung(t *testing.T) {
	for seed := range uint64(5) {
		w := started(t, seed, 3, 3*time.Second)
		w.define()
		w.keepProposing(50 * ms)
		for _, h := range w.hosts {
			h.Write = 20 * time.Second
		}
		w.run(10 * time.Second)
		for _, h := range w.hosts {
			h.Write = ms
		}
		w.run(15 * time.Second)
		for _, h := range w.hosts[1:] {
			apart(w.hosts[0], h, w.Cut)
		}
		apart(w.hosts[1], w.hosts[2], w.Cut)
		w.run(10 * time.Second)
		for _, h := range w.hosts[1:] {
			apart(w.hosts[0], h, w.Heal)
		}
		apart(w.hosts[1], w.hosts[2], w.Heal)
		w.until(3*w.lease, func() bool { return w.whole(w.hosts...) })
	}
}

// As long as one link alone does not carry, in one direction or both, all but one go on.
func TestOneLink(t *testing.T) {
	for a := range 5 {
		for b := range 5 {
			if a == b {
				continue
			}
			w := started(t, uint64(5*a+b), 5, time.Second)
			w.Cut(a, b)
			if a < b {
				w.Cut(b, a)
			}
			w.run(5 * w.lease)
			if n := w.stand(); n < 4 {
				t.Errorf("%d to %d: %d stand%s", a, b, n, w.state())
			}
			before := w.Elected()
			w.run(10 * w.lease)
			if w.Elected() != before {
				t.Errorf("%d to %d: %d elections more", a, b, w.Elected()-before)
			}
		}
	}
}

// However gateways come and go, an odd number of them votes.
func TestVotesAreOdd(t *testing.T) {
	w := newWorld(t, 1, 5, time.Second, ms, nil)
	for i, h := range w.hosts {
		h.Expect, h.Joining = 1, i > 0
		h.Start()
	}
	check := func() {
		for _, h := range w.hosts {
			if h.Core != nil && len(h.Core.Voters())%2 == 0 && len(h.Core.Voters()) > 0 {
				t.Fatalf("an even number of voters at %s: %x", h.Name, h.Core.Voters())
			}
		}
	}
	whole := func() bool { check(); return w.whole(w.hosts...) && len(w.Leader().Core.Voters()) == 5 }
	w.until(20*time.Second, whole)
	w.hosts[3].Kill()
	for end := w.Now() + 5*time.Second; w.step(end); {
		check()
	}
	w.hosts[3].Start()
	w.until(20*time.Second, whole)
}

// All but one leave at almost the same moment: each vote is given up before its process ends, and the
// one that stays goes on alone.
func TestManyLeave(t *testing.T) {
	for seed := range uint64(50) {
		w := started(t, seed, 2+int(seed)%4, time.Second)
		stays := w.other(nil)
		for _, h := range w.hosts {
			if h != stays {
				w.after(w.random(100*ms), func() { h.Step(core.Leave{}) })
			}
		}
		w.until(5*time.Second, func() bool {
			for _, h := range w.hosts {
				if h.Left == (h == stays) {
					return false
				}
			}
			return w.whole(stays) && len(stays.Core.Voters()) == 1
		})
	}
}

// All leave at once, and nobody waits for those that have gone.
func TestAllLeave(t *testing.T) {
	for seed := range uint64(50) {
		w := started(t, seed, 1+int(seed)%5, time.Second)
		for _, h := range w.hosts {
			h.Step(core.Leave{})
		}
		w.until(time.Second, func() bool {
			for _, h := range w.hosts {
				if !h.Left {
					return false
				}
			}
			return true
		})
	}
}

// A leader that was stopped, and wakes when another one leads, extends no lease: not even that of a
// member that reaches nobody else.
func TestDeposedLeader(t *testing.T) {
	expired := 0
	for seed := range uint64(20) {
		w := started(t, seed, 5, time.Second)
		l := w.Leader()
		x := w.other(l)
		node := x.Standing.Node
		l.Pause()
		w.after(w.random(w.lease/4)+w.lease*6/10, l.Resume)
		for _, h := range w.hosts {
			if h != l && h != x {
				apart(x, h, w.Cut)
				apart(l, h, w.Cut)
			}
		}
		w.run(4 * w.lease)
		if lost, known := w.View().LostMember(node); known && !lost.Leased {
			expired++
		}
	}
	if expired < 10 {
		t.Errorf("%d of 20 leases are over: that shows nothing", expired)
	}
}

// Many gateways come in one after the other, and rest.
func TestForty(t *testing.T) {
	w := newWorld(t, 1, 40, 3*time.Second, ms, nil)
	for i, h := range w.hosts {
		if h.Expect = 3; i >= 3 {
			h.Expect, h.Joining = 1, true
		}
		w.after(w.random(300*ms), h.Start)
	}
	w.until(60*time.Second, func() bool { return w.whole(w.hosts...) })
	at, elected, events := w.Now(), w.Elected(), w.Events()
	w.run(30 * time.Second)
	t.Logf("whole after %v; %d events of all in a second of rest", at.Round(ms), (w.Events()-events)/30)
	if w.Elected() != elected || !w.whole(w.hosts...) {
		t.Errorf("%d elections%s", w.Elected()-elected, w.state())
	}
}

// A gateway whose renewals are late forgets its leader, and renews with it all the same.
func TestForgottenLeader(t *testing.T) {
	w := started(t, 1, 5, time.Second)
	l := w.Leader()
	x := w.other(l)
	w.Cut(x.Index, l.Index)
	w.run(w.lease * 7 / 10)
	w.Heal(x.Index, l.Index)
	w.until(5*w.lease, func() bool { return w.whole(w.hosts...) })
	if w.Leader() != l {
		t.Error("another one leads")
	}
}

// A new leader counts no lease as over that the one before may have granted.
func TestLeasesOfTheLeaderBefore(t *testing.T) {
	for seed := range uint64(10) {
		w := started(t, seed, 5, time.Second)
		l := w.Leader()
		x := w.other(l)
		for _, h := range w.hosts {
			if h != l && h != x {
				apart(x, h, w.Cut)
			}
		}
		w.run(w.lease)
		l.Kill()
		w.run(3 * w.lease)
	}
}

// A former leader that reaches a member, and not the new leader, says when its lease is over. What it had comes back
// then, not when the new leader would count it as over.
func TestGivesBackThroughAnother(t *testing.T) {
	for seed := range uint64(10) {
		w := started(t, seed, 5, time.Second)
		l := w.Leader()
		node := l.Standing.Node
		for _, h := range w.hosts {
			if h != l && h != w.hosts[0] {
				apart(l, h, w.Cut)
			}
		}
		w.until(w.lease*13/10, func() bool {
			lost, known := w.View().LostMember(node)
			return known && !lost.Leased || l == w.hosts[0] || w.Leader() == w.hosts[0]
		})
	}
}

// While the lead passes from one to the next nobody loses a lease.
func TestLeaderChanges(t *testing.T) {
	w := started(t, 1, 3, time.Second)
	before := w.number
	for range 3 {
		l := w.Leader()
		core.HandOver(l.Core)
		l.Step(core.Woken{})
		w.until(w.lease/3, func() bool { return w.Leader() != nil && w.Leader() != l })
		w.run(w.lease)
		if !w.whole(w.hosts...) || w.number != before {
			t.Fatalf("somebody lost its lease%s", w.state())
		}
	}
}

// A leader that sends heartbeats, and grants nothing, is replaced.
func TestMuteLeader(t *testing.T) {
	w := started(t, 1, 3, time.Second)
	l, began := w.Leader(), w.Now()
	l.Mute = true
	w.until(w.lease, func() bool { return w.Leader() != nil && w.Leader() != l })
	t.Logf("after %v", (w.Now() - began).Round(ms))
}

// One that was let in and that gets no lease, since nothing of the leader's arrives, asks others to be let in:
// then the lead goes to one that more can reach.
func TestNothingArrives(t *testing.T) {
	for seed := range uint64(5) {
		w := started(t, seed, 7, time.Second)
		l := w.Leader()
		var cut []*hosts.Host
		for _, h := range w.hosts {
			if h != l && len(cut) < 2 {
				cut = append(cut, h)
			}
		}
		for _, h := range cut {
			h.Kill()
		}
		w.until(10*w.lease, func() bool { return len(w.View().Members) == 5 && w.View().Lease > 0 })
		for _, h := range cut {
			h.Start()
		}
		w.until(10*w.lease, func() bool { return len(w.View().Members) == 7 })
		for _, h := range cut {
			w.Cut(l.Index, h.Index)
		}
		w.run(15 * w.lease)
		if n := w.stand(); n < 6 {
			t.Errorf("seed %d: %d stand%s", seed, n, w.state())
		}
	}
}

// All that was written makes the same as the records that stand for it.
func TestWholeIsTheSame(t *testing.T) {
	w := started(t, 3, 3, 500*ms)
	w.define()
	w.keepProposing(5 * ms)
	w.run(10 * time.Second)
	for _, h := range w.hosts {
		w.run(20 * ms)
		h.Kill()
		before := h.Records()
		if err := h.Rewrite(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d records became %d", h.Name, before, h.Records())
		h.Start()
		w.until(10*time.Second, func() bool { return w.whole(w.hosts...) })
	}
}

// An old copy of a data directory is put back while those are there that know better. It is brought up to date.
func TestOldCopy(t *testing.T) {
	for seed := range uint64(10) {
		w := started(t, seed, 3, time.Second)
		w.define()
		w.keepProposing(50 * ms)
		h := w.other(w.Leader())
		w.until(20*w.lease, func() bool { return len(h.Core.Voters()) == 3 })
		old := h.Records()
		w.run(w.random(2 * w.lease))
		h.Kill()
		if err := h.Restore(old); err != nil {
			t.Fatal(err)
		}
		h.Start()
		w.until(10*w.lease, func() bool { return w.whole(w.hosts...) })
	}
}

// Those that have come later go on without the one that has founded the cluster, and give its vote to another.
func TestNewcomersLead(t *testing.T) {
	w := newWorld(t, 1, 4, time.Second, ms, nil)
	for i, h := range w.hosts {
		h.Expect, h.Joining = 1, i > 0
		h.Start()
	}
	founder, others := w.hosts[0], w.hosts[1:]
	w.until(10*w.lease, func() bool { return w.whole(w.hosts...) && len(founder.Core.Voters()) == 3 })
	founder.Kill()
	w.until(10*w.lease, func() bool {
		voters, votes := w.Voters()
		return w.whole(others...) && votes == 3 && !slices.Contains(voters, founder.Index)
	})
}

// Founders that leave as soon as they have a lease wait for those that have none yet.
func TestFoundersLeave(t *testing.T) {
	late := 0 // how many leave before the third is in
	for seed := range uint64(50) {
		w := newWorld(t, seed, 3, time.Second, ms, nil)
		for _, h := range w.hosts {
			w.after(w.random(300*ms), h.Start)
		}
		stood := make(map[*hosts.Host]bool)
		w.until(5*time.Second, func() bool {
			for _, h := range w.hosts {
				if h.Stands() && !stood[h] {
					stood[h] = true
					if len(w.View().Members) < 3 {
						late++
					}
					h.Step(core.Leave{})
				}
			}
			return len(stood) == 3 && w.hosts[0].Left && w.hosts[1].Left && w.hosts[2].Left
		})
	}
	if late < 20 {
		t.Errorf("%d left before all were in: that shows nothing", late)
	}
}

// Of more gateways than start a cluster together, as many do, and let in the others.
func TestMoreThanExpected(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(t, seed, 4+int(seed)%3, time.Second, ms, nil)
		for _, h := range w.hosts {
			h.Expect = 3
			w.after(w.random(300*ms), h.Start)
		}
		w.until(5*time.Second, func() bool { return w.whole(w.hosts...) })
	}
}

// One that was lost, and leaves before it is back, has its vote taken at once: it does not come back.
func TestLostOneLeaves(t *testing.T) {
	w, _, o := three(t)
	for _, h := range w.hosts {
		if h != o {
			apart(o, h, w.Cut)
		}
	}
	w.run(3 * w.lease)
	for _, h := range w.hosts {
		apart(o, h, w.Heal)
	}
	o.Step(core.Leave{})
	w.until(4*time.Second, func() bool { return o.Left && len(w.Leader().Core.Voters()) < 3 })
}

// One that is to leave and was cut off has its vote taken when it is back. It hears that, and leaves.
func TestHearsThatItsVoteIsTaken(t *testing.T) {
	for seed := range uint64(30) {
		w := started(t, seed, 5, time.Second)
		o := w.other(w.Leader())
		for _, h := range w.hosts {
			apart(o, h, w.Cut)
		}
		w.run(2 * w.lease)
		o.Step(core.Leave{})
		w.run(w.lease + w.random(w.lease))
		for _, h := range w.hosts {
			apart(o, h, w.Heal)
		}
		w.until(4*time.Second, func() bool { return o.Left })
	}
}

// As many voters as may be lost are cut off, however lately, or their disks hang; connections to them still stand. Then
// another leaves. Their votes are taken first, so that the others go on. They vote again when they are back.
func TestSomeAreCutOffAndAnotherLeaves(t *testing.T) {
	for seed := range uint64(120) {
		n := 3 + 2*int(seed%2)
		w := started(t, seed, n, 3*time.Second)
		w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == n })
		leads := w.Leader()
		leaves := leads
		if seed%4 >= 2 {
			leaves = w.other(leads)
		}
		var cut, stay []*hosts.Host
		for _, i := range w.Rand().Perm(n) {
			switch h := w.hosts[i]; {
			case h == leaves:
			case h != leads && len(cut) < n/2:
				cut = append(cut, h)
			default:
				stay = append(stay, h)
			}
		}
		all := func(hang func(h *hosts.Host), link func(from, to int)) {
			for _, c := range cut {
				if seed%8 >= 6 {
					hang(c)
					continue
				}
				for _, h := range w.hosts {
					if h != c {
						apart(c, h, link)
					}
				}
			}
		}
		all((*hosts.Host).Hang, w.Cut)
		w.run(w.random(w.lease))
		leaves.Step(core.Leave{})
		w.until(w.lease, func() bool { return leaves.Left })
		w.run(2 * w.lease)
		if !w.whole(stay...) {
			t.Fatalf("seed %d: who stays does not go on%s", seed, w.state())
		}
		all((*hosts.Host).Unhang, w.Heal)
		leaves.Start()
		w.until(3*w.lease, func() bool { return w.whole(w.hosts...) && len(stay[0].Core.Voters()) == n })
	}
}

// There are two gateways and a witness. The gateway that does not lead is cut off; the connection to it still stands. The
// leader leaves, and hands over to the witness, which answers.
func TestHandsOverToWhoAnswers(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, seed, 3, 10*time.Second, ms, nil)
		w.hosts[2].Witness = true
		for _, h := range w.hosts {
			w.after(w.random(300*ms), h.Start)
		}
		w.until(20*time.Second, func() bool {
			l := w.Leader()
			return w.whole(w.hosts...) && len(w.hosts[0].Core.Voters()) == 3 && l != nil && !l.Witness
		})
		l := w.Leader()
		for _, h := range w.hosts {
			if cut := w.hosts[1-l.Index]; h != cut {
				apart(cut, h, w.Cut)
			}
		}
		w.run(w.lease / 4)
		l.Step(core.Leave{})
		w.until(w.lease*2/5, func() bool { return l.Left })
	}
}

// Two of five are cut off, and two others leave, one after the other. The last goes on alone.
func TestTwoLeaveOneAfterTheOther(t *testing.T) {
	for seed := range uint64(40) {
		w := started(t, seed, 5, 3*time.Second)
		w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == 5 })
		order := w.Rand().Perm(5)
		for _, i := range order[:2] {
			for _, h := range w.hosts {
				if h.Index != i {
					apart(w.hosts[i], h, w.Cut)
				}
			}
		}
		w.run(w.random(w.lease))
		for _, i := range order[2:4] {
			w.hosts[i].Step(core.Leave{})
			w.until(2*w.lease, func() bool { return w.hosts[i].Left })
			w.run(w.random(w.lease))
		}
		w.run(2 * w.lease)
		if !w.whole(w.hosts[order[4]]) {
			t.Fatalf("seed %d: the last one does not go on%s", seed, w.state())
		}
	}
}

// A hello may say anything of how far the log is agreed on: of entries that are not here it is not believed.
func TestNonsenseInHello(t *testing.T) {
	w := started(t, 1, 3, time.Second)
	l := w.Leader()
	o := w.other(l)
	l.Kill()
	w.until(2*w.lease, func() bool { return o.Core.Leader() == 0 })
	before, _ := o.Core.Applied()
	x := w.hosts[3-l.Index-o.Index]
	for _, index := range []uint64{before.Index + 1, 1 << 32, 1 << 63, 1<<63 + 1000, math.MaxUint64} {
		for _, term := range []uint64{0, before.Term, math.MaxUint64} {
			hello := &core.Hello{Name: x.Name, Boot: x.Boot, Cluster: w.View().Cluster, Agreed: core.Position{Index: index, Term: term}}
			o.Step(core.Received{From: x.Core.ID(), Message: core.Message{Hello: hello}})
		}
	}
	if after, _ := o.Core.Applied(); after != before {
		t.Errorf("%v is agreed on, and %v was", after, before)
	}
}

// The leader of five leaves, and the next one does not hear the oldest of the others at first. The youngest loses its
// vote, not the oldest: a new leader gives all time to answer.
func TestNewLeaderHearsFirst(t *testing.T) {
	for seed := range uint64(20) {
		w := started(t, seed, 5, 3*time.Second)
		w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == 5 })
		leaves := w.Leader()
		leaves.Step(core.Leave{})
		w.until(2*w.lease, func() bool { l := w.Leader(); return l != nil && l != leaves })
		leads := w.Leader()
		var oldest *hosts.Host
		for _, m := range slices.Backward(w.View().Members) {
			i := slices.IndexFunc(w.hosts, func(h *hosts.Host) bool { return h.Name == m.Name })
			if h := w.hosts[i]; h != leads && h != leaves {
				oldest = h
			}
		}
		w.Cut(oldest.Index, leads.Index)
		w.run(w.lease / 4)
		w.Heal(oldest.Index, leads.Index)
		w.run(2 * w.lease)
		if v := leads.Core.Voters(); len(v) != 3 || !slices.Contains(v, oldest.Core.ID()) {
			t.Fatalf("seed %d: %v vote, and %v is the oldest%s", seed, v, oldest.Core.ID(), w.state())
		}
	}
}

// One of three leaves, and the leader is killed as it takes the votes of the two others. It has the change in its log, and
// may not know any more that it is agreed on. Who stays knows, and has entries that the leader lacks, so it does not vote
// for it: it tells the leader what is agreed on.
func TestKilledAsItTakesVotes(t *testing.T) {
	for seed := range uint64(100) {
		w := started(t, seed, 3, time.Second)
		w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == 3 })
		l := w.Leader()
		l.Write = 60 * ms
		w.define()
		w.keepProposing(5 * ms)
		leaves := w.other(l)
		stays := w.hosts[3-l.Index-leaves.Index]
		leaves.Step(core.Leave{})
		w.until(5*time.Second, func() bool { return len(l.Core.Voters()) == 1 && len(l.Core.Outgoing()) == 0 })
		w.run(w.random(60 * ms))
		l.Kill()
		w.run(w.lease)
		l.Start()
		w.until(4*w.lease, func() bool { return w.whole(l, stays) })
	}
}

// Who serves and is well keeps its vote: nobody else's trouble, and no lapse of its lease, takes it.
func TestWhoAnswersKeepsItsVote(t *testing.T) {
	for n := 3; n <= 5; n += 2 {
		for what, harm := range map[string]func(w *world, l, o, x *hosts.Host){
			"a link between two others": func(w *world, _, o, x *hosts.Host) { apart(o, x, w.Cut) },
			"a lease lapses":            func(w *world, _, o, _ *hosts.Host) { o.Pause(); w.after(w.lease*11/10, o.Resume) },
			"a disk is slow":            func(w *world, _, o, _ *hosts.Host) { o.Write = w.lease / 4 },
			"the leader stalls":         func(w *world, l, _, _ *hosts.Host) { l.Pause(); w.after(w.lease/5, l.Resume) },
		} {
			for seed := range uint64(5) {
				w := started(t, seed, n, time.Second)
				w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == n })
				w.define()
				w.keepProposing(w.lease / 8)
				l := w.Leader()
				o := w.other(l)
				x := o
				for x == o {
					x = w.other(l)
				}
				harm(w, l, o, x)
				for end := w.Now() + 5*w.lease; w.step(end); {
					if h := w.Leader(); h != nil && len(h.Core.Voters()) != n {
						t.Fatalf("%s, %d gateways, seed %d: %d votes%s", what, n, seed, len(h.Core.Voters()), w.state())
					}
				}
			}
		}
	}
}

// A member that is none of raft's servers any more, since it came back while it was taken off them, sees no views: it is
// suspended, and comes back as both.
func TestMemberWithoutServer(t *testing.T) {
	for seed := range uint64(10) {
		w := started(t, seed, 4, time.Second)
		l := w.Leader()
		o := w.other(l)
		core.TakeServer(l.Core, o.Core.ID())
		l.Step(core.Woken{})
		w.run(w.lease / 10)
		w.define()
		w.until(3*w.lease, func() bool { return w.whole(w.hosts...) && len(o.Core.Voters()) == 3 })
	}
}

// A gateway that asks to come in while raft's servers change is let in after the change, which may take its server away.
func TestJoinsAfterTheServersChange(t *testing.T) {
	for seed := range uint64(10) {
		w := started(t, seed, 4, time.Second)
		l := w.Leader()
		o := w.other(l)
		m, _ := w.View().Named(o.Name)
		again := views.Join{Name: m.Name, Boot: m.Boot + ".9", PeerAddr: m.PeerAddr, Server: m.Server, Voided: m.Node}
		var reaches []string
		for _, h := range w.hosts {
			reaches = append(reaches, h.Name)
		}
		w.run(w.lease) // its first join is long ago
		core.TakeServer(l.Core, o.Core.ID())
		l.Step(core.Received{From: o.Core.ID(), Message: core.Message{Join: &core.Join{Join: again, Reaches: reaches}}})
		w.run(w.lease / 10)
		if m, in := w.View().Named(o.Name); in && m.Boot == again.Boot {
			t.Errorf("seed %d: %s is a member again, and its server goes", seed, o.Name)
		}
	}
}

// One whose disk hangs cannot see that it is out. It leaves when its lease is over.
func TestLeavesWithoutDisk(t *testing.T) {
	w := started(t, 1, 2, time.Second)
	o := w.other(w.Leader())
	o.Hang()
	o.Step(core.Leave{})
	w.until(3*time.Second, func() bool { return o.Left })
}

// The one that stays is started again before it has taken the vote of the one that leaves. That waits for it, also
// when its lease is over.
func TestStartedAgainWhileAnotherLeaves(t *testing.T) {
	w := started(t, 1, 2, time.Second)
	l := w.Leader()
	o := w.other(l)
	l.Step(core.Leave{})
	w.until(time.Second, func() bool { return o.Core.Leads() && len(o.Core.Voters()) == 2 })
	o.Kill()
	w.run(1200 * ms)
	o.Start()
	w.until(8*time.Second, func() bool { return l.Left && w.whole(o) })
}
