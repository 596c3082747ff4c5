package hosts

import (
	"slices"
	"time"

	"github.com/kgate/kgate/lab/sim"
)

// This file has what can be wrong between two hosts, and how the ends of a connection find out.

// Cut lets nothing pass from a host to another.
func (w *World) Cut(from, to int) {
	if !w.IsCut(from, to) {
		w.Tracef("", "host %d: nothing passes to %d", from, to)
		w.cuts++
		w.Engine.Cut(from, to)
		w.changed(from, to)
	}
}

// Heal ends it.
func (w *World) Heal(from, to int) {
	if w.IsCut(from, to) {
		w.Tracef("", "host %d: all passes to %d", from, to)
		w.cuts--
		w.Engine.Heal(from, to)
		w.changed(from, to)
	}
}

// Bar lets a host open no new connections to another. Those that are open go on.
func (w *World) Bar(from, to int) {
	w.Tracef("", "host %d: can open no connections to %d", from, to)
	w.bars[[2]int{from, to}] = true
}

// Unbar ends it.
func (w *World) Unbar(from, to int) { delete(w.bars, [2]int{from, to}) }

// Narrow has long packets of a host to another get lost over and over, though short ones
// pass: a path whose MTU is smaller than the hosts think.
func (w *World) Narrow(from, to int) {
	w.Tracef("", "host %d: its long packets to %d are lost", from, to)
	w.narrows[[2]int{from, to}] = true
}

// Widen ends it. What was lost is sent again; what is behind it waits until then.
func (w *World) Widen(from, to int) {
	delete(w.narrows, [2]int{from, to})
	if c := w.hosts[from].cur[to]; c != nil {
		w.Send(from, to, &again{c})
	}
}

// Lose has half of the letters of a host to another break their connection, before or after they
// have arrived.
func (w *World) Lose(from, to int) {
	w.Tracef("", "host %d: half of its letters to %d are lost", from, to)
	w.losses[[2]int{from, to}] = true
}

// Unlose ends it.
func (w *World) Unlose(from, to int) { delete(w.losses, [2]int{from, to}) }

// Slow adds d to the delay from one host to another; 0 ends it.
func (w *World) Slow(from, to int, d time.Duration) {
	w.Engine.Slow(from, to, d)
	if d > 0 {
		w.late[[2]int{from, to}] = w.Now() + d // nothing comes until then
		w.changed(from, to)
	}
}

// Break ends the connection of two hosts, if there is one, at both ends: something between them has
// forgotten it.
func (w *World) Break(a, b int) {
	if c := w.hosts[a].cur[b]; c != nil {
		w.Tracef("", "the connection of %d and %d breaks", a, b)
		w.Send(b, a, &reset{c})
		w.Send(a, b, &reset{c})
	}
}

func (w *World) changed(a, b int) {
	for _, ends := range [][2]int{{a, b}, {b, a}} {
		if c := w.hosts[ends[0]].cur[ends[1]]; c != nil {
			w.doubted(c)
		}
	}
	w.gossip()
}

// doubtAll has all connections of a host looked at.
func (h *Host) doubtAll() {
	for i, o := range h.hosts {
		if c := h.cur[i]; c != nil {
			h.doubted(c)
		}
		if c := o.cur[h.Index]; c != nil {
			h.doubted(c)
		}
	}
}

// lookEvery is the time between two looks at the connections that are in doubt.
const lookEvery = 50 * time.Millisecond

// doubted has a connection looked at from now on.
func (w *World) doubted(c *conn) {
	if c.doubt {
		return
	}
	c.doubt = true
	w.doubts = append(w.doubts, c)
	if !w.doubting {
		w.doubting = true
		w.After(sim.World, 0, sim.Timer{Kind: timerDoubts})
	}
}

// look looks at the connections that are in doubt. All others are well: there are signs of life on
// them all the time, which nobody has to see.
func (w *World) look() {
	w.doubting = false
	doubts := w.doubts
	w.doubts = nil
	doubts = slices.DeleteFunc(doubts, func(c *conn) bool { c.doubt = w.ill(c); return !c.doubt })
	if w.doubts = append(doubts, w.doubts...); len(w.doubts) > 0 {
		w.doubting = true
		w.After(sim.World, lookEvery, sim.Timer{Kind: timerDoubts})
	}
}

// ill looks at one connection, and reports whether it has to be looked at again.
func (w *World) ill(c *conn) bool {
	again := false
	for side := range c.ends {
		e, other := &c.ends[side], &c.ends[1-side]
		h, o := e.host, other.host
		if e.state != open || e.run != h.run || h.Core == nil {
			continue
		}
		dead := other.state == closed || other.run != o.run || o.Core == nil
		way := [2]int{o.Index, h.Index}
		silent := dead || w.IsCut(o.Index, h.Index) || w.Paused(o.Index) || other.stuck || w.Now() < w.late[way]
		again = again || silent || w.Paused(h.Index)
		switch {
		case w.Paused(h.Index):
		case !silent:
			e.lost, e.owed = never, never
		case dead && !o.off && !w.Paused(o.Index) && !w.IsCut(o.Index, h.Index) && !w.IsCut(h.Index, o.Index):
			h.close(c, false, "reset") // that is the answer to whatever this end says
		case e.lost == never:
			e.lost = w.Now()
		case w.Now()-e.lost >= w.cfg.Lease*7/8 || e.owed != never && w.Now()-e.owed >= w.cfg.Lease*5/8:
			h.close(c, true, "silent")
		}
	}
	return again
}

// Passes reports whether a host can open a connection to another, its long packets pass over it, and
// it does not break at every other letter of that host.
func (h *Host) Passes(o *Host) bool {
	way := [2]int{h.Index, o.Index}
	return h.Works() && o.Works() && (h == o || h.reaches(o) && !h.narrows[way] && !h.losses[way])
}
