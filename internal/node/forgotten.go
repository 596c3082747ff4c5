package node

import (
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/gateway"
)

// forgotten logs slots that the program holds for longer than their pool allows. Requests of the proxy
// and of Middleware are broken off then; a slot of the program's own code can only be reported.
type forgotten struct {
	log  *slog.Logger
	told map[string]map[string]bool // by pool, and the slot's name
}

// look logs the slots of a pool that have been held for longer than longest, once each; 0: no bound.
func (f *forgotten) look(g *gateway.Gateway, pool string, longest time.Duration) {
	if longest <= 0 {
		return
	}
	told := f.told[pool]
	f.told[pool] = make(map[string]bool)
	for _, e := range g.Own(pool, longest) {
		f.told[pool][e.ID] = true
		if told[e.ID] {
			continue
		}
		f.log.Warn("a slot is held for longer than its pool allows: its holder may have forgotten to release it",
			slog.String("pool", pool), slog.String("slot", e.ID), slog.String("note", shortened(e.Info.Note)),
			slog.Duration("held", e.For), slog.Duration("hold_max", longest))
	}
}

// hoards logs when the tickets of this gateway have held all slots of a pool for a while.
type hoards struct {
	log   *slog.Logger
	since map[string]time.Time // by pool
	told  map[string]bool
}

// hoardedFor is how long that is: who holds a slot by a ticket is slow for good reasons, too.
const hoardedFor = 30 * time.Second

func (h *hoards) look(p *gateway.PoolStatus, now time.Time) {
	since, known := h.since[p.Name]
	switch {
	case p.TicketsHolding == 0 || p.TicketsHolding < p.K:
		delete(h.since, p.Name)
		delete(h.told, p.Name)
	case !known:
		h.since[p.Name] = now
	case now.Sub(since) >= hoardedFor && !h.told[p.Name]:
		h.told[p.Name] = true
		h.log.Warn("tickets hold all slots", slog.String("pool", p.Name), slog.Int("slots", p.K), slog.Int("waiting", p.Waiting),
			slog.String("hint", "kgate status lists their holders"))
	}
}

// logHeld names the slots that the program still holds.
func (n *Node) logHeld() {
	for _, p := range n.pools.gateway.Pools() {
		for _, e := range n.pools.gateway.Own(p.Name, 0) {
			n.cfg.Logger.Warn("a slot is still held at the end: its holder has not released it",
				slog.String("pool", p.Name), slog.String("slot", e.ID), slog.String("note", shortened(e.Info.Note)), slog.Duration("held", e.For))
		}
	}
}
