package core

import (
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	worlds     = flag.Int("core.seeds", 60, "how many worlds TestWorlds runs")
	firstWorld = flag.Uint64("core.first", 1, "the first of them")
	oneWorld   = flag.Uint64("core.seed", 0, "run only this world, and trace it")
)

// Whatever happens, what was agreed on stays, nobody stands who has been let go, and when it is over all
// stand again.
func TestWorlds(t *testing.T) {
	if *oneWorld > 0 {
		w := drawWorld(*oneWorld)
		w.trace = new(strings.Builder)
		w.play()
		t.Logf("%s", w.trace)
		for _, err := range w.errs {
			t.Error(err)
		}
		return
	}
	var steps uint64
	for seed := *firstWorld; seed < *firstWorld+uint64(*worlds); seed++ {
		w := drawWorld(seed)
		w.play()
		steps += w.steps
		for _, err := range w.errs {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d worlds, %d steps", *worlds, steps)
}

// drawWorld draws what kind of world it is.
func drawWorld(seed uint64) *world {
	r := newWorld(seed, 0, time.Second).r
	lease := []time.Duration{500 * ms, time.Second, 3 * time.Second}[r.IntN(3)]
	n := 1 + r.IntN(5)
	founders := 1 + r.IntN(n)
	w := newWorld(seed, n, lease)
	w.delay = min(time.Duration(1+r.IntN(30))*ms, lease/50)
	memory := r.IntN(3) == 0
	for i, h := range w.hosts {
		h.memory = memory
		h.expect = founders
		if i >= founders {
			h.expect, h.joining = 1, true
		}
		h.write = []time.Duration{ms / 2, 5 * ms, 40 * ms}[r.IntN(3)]
		h.witness = n > 2 && r.IntN(8) == 0
		h.rate = 0.92 + 0.16*r.Float64()
	}
	return w
}

// play lets things happen to a world, and then has everything mended.
func (w *world) play() {
	for _, h := range w.hosts {
		w.after(time.Duration(w.r.Int64N(int64(w.lease))), h.start)
	}
	within := 15*w.lease + 6*time.Second
	if !w.runUntil(within, func() bool { return w.whole(w.hosts...) }) {
		w.fail("not whole at first")
		return
	}
	w.hosts[0].define()
	w.keepProposing(w.lease / 8)
	for range 4 + w.r.IntN(12) {
		w.hurt()
		w.runFor(time.Duration(w.r.Int64N(int64(2 * w.lease))))
		if len(w.errs) > 0 {
			return
		}
	}
	if w.r.IntN(2) == 0 {
		w.endure()
	}
	w.mend()
	w.runUntil(w.now+leaveTime+time.Second, func() bool {
		return !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.core != nil && h.core.leaving })
	})
	for _, h := range w.hosts {
		if h.left {
			h.kill(false)
			h.start()
		}
	}
	from := w.now
	if !w.runUntil(w.now+within, func() bool { return w.whole(w.hosts...) }) {
		w.fail("not whole again %v after all was mended: %s", w.now-from, w.state())
	}
	w.runFor(2 * w.lease)
}

// endure lets no more happen for a while, and holds what serves then against the largest set of hosts
// that all reach each other, if it has a majority of the voters.
func (w *world) endure() {
	w.calm = true
	for _, h := range w.hosts {
		if h.memory && h.core == nil || h.core != nil && (h.core.leaving || h.left) {
			return // its vote is on its way
		}
	}
	w.runFor(8*w.lease + 6*time.Second)
	if len(w.errs) > 0 {
		return
	}
	var newest *host
	for _, h := range w.hosts {
		if h.core != nil && (newest == nil || h.core.applied.Index > newest.core.applied.Index) {
			newest = h
		}
	}
	if newest == nil || len(newest.core.conf.GetVotersOutgoing()) > 0 {
		return
	}
	most, stand := 0, 0
	for set := range 1 << len(w.hosts) {
		if w.reachesAll(set, newest.core.Voters()) {
			most = max(most, bits.OnesCount(uint(set)))
		}
	}
	for _, h := range w.hosts {
		if h.stands() {
			stand++
		}
	}
	if stand < most {
		w.fail("%d stand, and %d reach each other: %s\ncut %v", stand, most, w.state(), w.cuts())
	}
}

// reachesAll reports that the hosts of a set work, reach each other, and have a majority of the
// voters.
func (w *world) reachesAll(set int, voters []ID) bool {
	votes := 0
	for i, h := range w.hosts {
		if set>>i&1 == 0 {
			continue
		}
		if h.core == nil || h.paused || h.hangs || h.silent {
			return false
		}
		if slices.Contains(voters, h.core.ID()) {
			votes++
		}
		for j, o := range w.hosts {
			if j != i && set>>j&1 == 1 && !w.passes(h, o) {
				return false
			}
		}
	}
	return votes > len(voters)/2
}

func (w *world) cuts() (ways []string) {
	for i, a := range w.hosts {
		for j, b := range w.hosts {
			if w.cut[[2]int{i, j}] {
				ways = append(ways, a.name+b.name)
			}
		}
	}
	return ways
}

// state says who is where.
func (w *world) state() string {
	var b strings.Builder
	for _, h := range w.hosts {
		if h.core == nil {
			fmt.Fprintf(&b, "\n%s: down", h.name)
			continue
		}
		fmt.Fprintf(&b, "\n%s: %x %v term %d leader %x view %d stands %t applied %v last %v voters %x servers %v conns %v", h.name, uint64(h.core.ID()), h.core.state,
			h.core.Term(), uint64(h.core.lead), h.view.Number, h.stands(), h.core.applied, h.core.last(), h.core.Voters(), h.core.servers, h.core.peers.names())
		fmt.Fprintf(&b, " %s writes %d leads %t busy %t hangs %t writing %d wakes %s", describe(h.view), len(h.core.writes), h.core.l != nil, h.busy, h.hangs, len(h.writing), h.core.wakes())
	}
	return b.String()
}

// hurt does some harm.
func (w *world) hurt() {
	h := w.hosts[w.r.IntN(len(w.hosts))]
	o := w.hosts[w.r.IntN(len(w.hosts))]
	switch w.r.IntN(15) {
	case 0, 1:
		if h.core != nil && w.mayKill(h) {
			h.kill(w.r.IntN(3) == 0)
			w.after(time.Duration(w.r.Int64N(int64(4*w.lease))), func() {
				if h.core == nil && !w.calm {
					h.start()
				}
			})
		}
	case 2, 3:
		if h.core == nil {
			h.start()
		}
	case 4:
		if h.core != nil && !h.paused {
			h.pause()
			run := h.run
			w.after(time.Duration(w.r.Int64N(int64(2*w.lease))), func() {
				if h.run == run && h.paused && !w.calm {
					h.resume()
				}
			})
		}
	case 5, 6:
		if h != o {
			w.setCut(h.i, o.i, true)
		}
	case 7:
		if h != o {
			w.cutBoth(h.i, o.i, true)
		}
	case 8: // one is cut off
		for _, o := range w.hosts {
			if o != h {
				w.cutBoth(h.i, o.i, true)
			}
		}
	case 9, 10: // all is healed
		for i := range w.hosts {
			for j := range w.hosts {
				w.setCut(i, j, false)
			}
		}
	case 11:
		h.hang(!h.hangs)
	case 12: // the leader
		if l := w.leader(); l != nil && w.mayKill(l) {
			l.kill(w.r.IntN(2) == 0)
			w.after(time.Duration(w.r.Int64N(int64(2*w.lease))), func() {
				if l.core == nil && !w.calm {
					l.start()
				}
			})
		}
	case 14: // an old copy of a data directory is put back, while those who know better are there
		if l := w.leader(); h.memory || l == nil || len(l.core.Voters()) < 3 || h.three == 0 || len(h.disk) < h.three {
			break // a single voter ends, with an error
		}
		for i := range w.hosts {
			for j := range w.hosts {
				w.setCut(i, j, false)
			}
			if o := w.hosts[i]; o != h && (o.core == nil || o.paused || o.hangs || o.core.leaving) {
				return
			}
		}
		h.kill(false)
		h.disk = slices.Clone(h.disk[:h.three+w.r.IntN(len(h.disk)-h.three+1)])
		w.tracef("%s has an old copy", h.name)
		h.start()
		w.runFor(2 * w.lease)
	case 13: // in order
		if h.core != nil && !h.paused && w.mayKill(h) && w.leader() != nil {
			h.step(Leave{})
			w.returns(h, h.run)
		}
	}
}

// returns starts a host again that has left, a little later.
func (w *world) returns(h *host, run int) {
	w.after(time.Duration(w.r.Int64N(int64(2*w.lease))), func() {
		switch {
		case h.run != run || h.core == nil || w.calm:
		case h.left:
			h.kill(false)
			h.start()
		default:
			w.returns(h, run)
		}
	})
}

// mayKill reports that a process may end: one in memory takes its votes along, so the others
// must be able to replace it.
func (w *world) mayKill(h *host) bool {
	if !h.memory {
		return true
	}
	l := w.leader()
	if l == nil || l == h && len(w.hosts) < 3 {
		return false
	}
	if len(l.core.conf.GetVotersOutgoing()) > 0 || l.core.l.changing != 0 {
		return false
	}
	for _, o := range w.hosts {
		if o.core != nil && o.core.leaving {
			return false
		}
	}
	for _, v := range l.core.Voters() {
		alive := false
		for _, o := range w.hosts {
			alive = alive || o.core != nil && !o.paused && o.core.ID() == v && o.core.lead == l.core.ID()
		}
		if !alive {
			return false
		}
	}
	return len(l.core.Voters()) > 2 || len(l.core.Voters()) == 1 && l.core.Voters()[0] != h.core.ID()
}

// mend makes everything well.
func (w *world) mend() {
	w.tracef("all is mended")
	for _, h := range w.hosts {
		if h.left {
			h.kill(false)
		}
	}
	for i, h := range w.hosts {
		for j := range w.hosts {
			w.setCut(i, j, false)
		}
		h.write = ms
		if h.hangs {
			h.hang(false)
		}
		if h.paused {
			h.resume()
		}
		if h.core == nil {
			h.start()
		}
	}
	w.gossip(0)
}
