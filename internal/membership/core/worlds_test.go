package core_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/lab/hosts"
)

var (
	worlds     = flag.Int("core.seeds", 60, "how many worlds TestWorlds runs")
	firstWorld = flag.Uint64("core.first", 1, "the first of them")
	oneWorld   = flag.Uint64("core.seed", 0, "run only this world, and trace it")
)

// Whatever happens, what was agreed on stays, nobody stands who has been let go, and when it is over all
// stand again. The lab's fuzz has pools beside it, and more faults; here are witnesses, short leases and
// clusters of other sizes.
func TestWorlds(t *testing.T) {
	if *oneWorld > 0 {
		trace := new(strings.Builder)
		defer func() { t.Logf("%s", trace) }()
		play(t, *oneWorld, trace)
		return
	}
	for seed := *firstWorld; seed < *firstWorld+uint64(*worlds); seed++ {
		if !t.Run("", func(t *testing.T) { t.Logf("seed %d", seed); play(t, seed, nil) }) && *worlds > 1 {
			return
		}
	}
}

// play lets things happen to a world, and then has everything mended.
func play(t *testing.T, seed uint64, trace *strings.Builder) {
	w := drawWorld(t, seed, trace)
	for _, h := range w.hosts {
		w.after(w.random(w.lease), h.Start)
	}
	within := 15*w.lease + 6*time.Second
	whole := func() bool { return w.whole(w.hosts...) }
	w.until(within, whole)
	w.define()
	w.keepProposing(w.lease / 8)
	for range 4 + w.Rand().IntN(12) {
		w.hurt(w.hosts[w.Rand().IntN(len(w.hosts))], w.hosts[w.Rand().IntN(len(w.hosts))])
		w.run(w.random(2 * w.lease))
	}
	w.calm = true
	for _, h := range w.hosts {
		for _, o := range w.hosts {
			w.Heal(h.Index, o.Index)
		}
		h.Write = ms
		h.Unhang()
		h.Resume()
	}
	w.until(within, func() bool {
		for _, h := range w.hosts {
			h.Start() // one that leaves ends first
		}
		return whole()
	})
	w.run(2 * w.lease)
}

// drawWorld draws what kind of world it is.
func drawWorld(t *testing.T, seed uint64, trace *strings.Builder) *world {
	r := newWorld(t, seed, 0, time.Second, ms, nil).Rand()
	lease := []time.Duration{500 * ms, time.Second, 3 * time.Second}[r.IntN(3)]
	n := 1 + r.IntN(5)
	founders := 1 + r.IntN(n)
	w := newWorld(t, seed, n, lease, min(time.Duration(1+r.IntN(30))*ms, lease/50), trace)
	memory := r.IntN(3) == 0
	for i, h := range w.hosts {
		h.Memory, h.Expect = memory, founders
		if i >= founders {
			h.Expect, h.Joining = 1, true
		}
		h.Write = []time.Duration{ms / 2, 5 * ms, 40 * ms}[r.IntN(3)]
		h.Witness = n > 2 && r.IntN(8) == 0
		w.SetRate(i, 0.92+0.16*r.Float64())
	}
	return w
}

// hurt does some harm to a host, or to what is between two.
func (w *world) hurt(h, o *hosts.Host) {
	switch w.Rand().IntN(14) {
	case 0, 1:
		w.end(h, []func(){h.Kill, h.Kill, h.Crash}[w.Rand().IntN(3)])
	case 2, 3:
		h.Start()
	case 4:
		if h.Works() {
			h.Pause()
			w.after(w.random(2*w.lease), func() {
				if !w.calm {
					h.Resume()
				}
			})
		}
	case 5, 6:
		w.Cut(h.Index, o.Index)
	case 7:
		apart(h, o, w.Cut)
	case 8: // one is cut off
		for _, o := range w.hosts {
			apart(h, o, w.Cut)
		}
	case 9, 10: // all is healed
		for i := range w.hosts {
			for j := range w.hosts {
				w.Heal(i, j)
			}
		}
	case 11:
		if h.Hangs() {
			h.Unhang()
		} else {
			h.Hang()
		}
	case 12: // the leader
		if l := w.Leader(); l != nil {
			w.end(l, []func(){l.Kill, l.Crash}[w.Rand().IntN(2)])
		}
	case 13: // in order
		if h.Works() && w.Leader() != nil {
			w.end(h, func() { h.Step(core.Leave{}) })
		}
	}
}

// end ends a process, if the others can go on without it. It starts again a little later.
func (w *world) end(h *hosts.Host, end func()) {
	if !w.MayLose(h.Index) {
		return
	}
	end()
	w.after(w.random(4*w.lease), func() {
		if !w.calm {
			h.Start()
		}
	})
}
