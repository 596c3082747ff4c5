package hosts

import (
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/lab/sim"
)

// Gossip is a model: each gateway knows a little later who runs, as long as there is a way by
// one other host, and later still who does not.
const (
	gossipTakes = 50 * time.Millisecond
	gossipFails = time.Second
)

// gossip has what discovery knows looked at, since something has changed.
func (w *World) gossip() {
	w.After(sim.World, gossipTakes, sim.Timer{Kind: timerGossip})
	w.After(sim.World, gossipTakes+gossipFails, sim.Timer{Kind: timerGossip})
}

// spread tells all hosts the living hosts.
func (w *World) spread() {
	for _, h := range w.hosts {
		if h.Works() {
			h.discover()
		}
	}
}

// discover tells the core the living hosts, if they have changed.
func (h *Host) discover() {
	known := slices.Clone(h.known)
	for i, o := range h.hosts {
		at := slices.IndexFunc(known, func(g core.Gateway) bool { return g.Name == o.Name })
		switch {
		case o.Works() && h.hears(o):
			h.seen[i] = h.Now()
			if at < 0 {
				at = len(known)
				known = append(known, core.Gateway{})
			}
			known[at] = core.Gateway{Name: o.Name, Boot: o.Boot, Addr: o.Name + ":7080", Expect: o.Expect, Alive: true}
		case at >= 0 && (o.Left && o.Core == nil || h.Now()-h.seen[i] >= gossipFails):
			known[at].Alive, known[at].Left = false, o.Left
		}
	}
	if !slices.Equal(known, h.known) {
		h.known = known
		h.Step(core.Gossip{Gateways: known})
	}
}

// hears reports that there is a way both ways, by another host if need be.
func (h *Host) hears(o *Host) bool {
	if h == o || h.cuts == 0 {
		return true
	}
	both := func(a, b *Host) bool {
		return b.Works() && !h.IsCut(a.Index, b.Index) && !h.IsCut(b.Index, a.Index)
	}
	return both(h, o) || slices.ContainsFunc(h.hosts, func(by *Host) bool { return both(h, by) && both(by, o) })
}
