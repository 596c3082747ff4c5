package gateway

import (
	"log/slog"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/transport"
)

// A gateway acts as one incarnation at a time, and only while that one has a
// lease. When the lease lapses, or the others have suspended the incarnation,
// everything it had is void: waiting requests are refused, those in flight are
// aborted, and the gateway comes back as a new one that remembers nothing.

// entitled reports whether the incarnation may have requests in flight now.
func (g *Gateway) entitled(self kmutex.Node) bool {
	s := g.cfg.Views.Standing()
	return self != 0 && s.Node == self && g.now().Before(s.Until)
}

// watch follows the views, and the lease to its end, until Close.
func (g *Gateway) watch() {
	lapse := time.NewTimer(0)
	defer lapse.Stop()
	for {
		changed := g.cfg.Views.Changed()
		g.follow()
		if until := g.cfg.Views.Standing().Until; !until.IsZero() {
			lapse.Reset(until.Sub(g.now()))
		}
		select {
		case <-changed:
		case <-lapse.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// follow takes over the newest agreed view and this gateway's standing in it.
func (g *Gateway) follow() {
	s := g.cfg.Views.Standing()
	if g.entitled(s.Node) {
		g.leased = true
	}
	if g.self != 0 && (s.Node != g.self || g.leased && !g.entitled(g.self)) {
		g.void()
		g.cfg.Views.Rejoin()
		return // as another incarnation, in a view to come
	}
	view := g.cfg.Views.View()
	if _, in := view.Member(s.Node); s.Node == 0 || !in {
		return
	}
	g.self = s.Node
	var peers []transport.Peer
	for _, m := range view.Members {
		if m.Node != g.self {
			peers = append(peers, transport.Peer{Node: m.Node, Name: m.Name, Addr: m.PeerAddr})
		}
	}
	for _, u := range g.cfg.Links.SetPeers(g.self, peers) {
		if p := g.pool(u.Pool); p != nil {
			p.salvage(u.Message)
		}
	}
	g.mu.Lock()
	g.size = len(view.Members)
	g.mu.Unlock()
	for _, spec := range view.Pools {
		g.followPool(g.self, view, spec)
	}
}

// void ends everything of the present incarnation. When it returns nothing waits
// or is in flight any more but for connections that are being closed.
func (g *Gateway) void() {
	g.mu.Lock()
	pools := g.pools
	g.pools = make(map[string]*pool)
	g.mu.Unlock()
	refused, aborted := 0, 0
	for _, p := range pools {
		r, a := p.void()
		refused, aborted = refused+r, aborted+a
	}
	g.cfg.Links.SetPeers(0, nil)
	g.cfg.Observer.LeaseLost()
	g.cfg.Logger.Warn("no longer entitled to admit: coming back as a new incarnation",
		slog.Uint64("node", uint64(g.self)), slog.Int("refused", refused), slog.Int("aborted", aborted))
	g.self, g.leased = 0, false
}

// void refuses who waits and aborts who is in flight; it returns how many.
func (p *pool) void() (refused, aborted int) {
	p.mu.Lock()
	var aborts []func()
	for _, s := range p.slots {
		if s.state == slotWaiting {
			refused++
			s.err = ErrIsolated
			s.wake()
		} else {
			aborted++
			if s.abort != nil {
				aborts = append(aborts, s.abort)
			}
		}
		s.state = slotLost
	}
	clear(p.slots)
	p.waiting, p.inFlight, p.requests = 0, 0, 0
	if p.desk != nil {
		p.desk.void()
		p.desk = nil
	}
	p.idle.signal(true)
	p.machine = nil
	p.ask.Stop()
	if p.reform != nil {
		p.reform.supersede()
		p.reform = nil
	}
	p.mu.Unlock()
	for _, abort := range aborts {
		abort()
	}
	return refused, aborted
}
