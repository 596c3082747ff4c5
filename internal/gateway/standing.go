package gateway

import (
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/transport"
)

// A gateway acts as one incarnation at a time, and only while that one has a
// lease. When the lease lapses, or the others have suspended the incarnation,
// everything it had is void: waiting requests are refused, those in flight are
// aborted, and the gateway comes back as a new one that remembers nothing.

// watch follows the views, and the lease to its end, until Close.
func (g *Gateway) watch() {
	lapse := time.NewTimer(0)
	defer lapse.Stop()
	for {
		changed := g.views.Changed()
		g.follow()
		if left := g.views.Standing().Until.Sub(g.now()); left > 0 {
			lapse.Reset(left)
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
	s := g.views.Standing()
	// A lapsed incarnation is over, also while the views still name it: it must
	// not be taken up again as one that runs nothing.
	over := s.Node == 0 || !s.Until.IsZero() && !g.now().Before(s.Until)
	if g.self != 0 && (over || s.Node != g.self) {
		left := g.left()
		ended := g.void(left)
		g.ending.Store(true) // for good, if it has left
		if !left {
			g.wg.Go(func() { g.comeBack(ended) })
		}
		return // comes back as another incarnation, in a view to come
	}
	if over {
		if !g.ending.Load() {
			g.views.Rejoin() // should it have been lost before it was followed here
		}
		return
	}
	view := g.views.View()
	self, in := view.Member(s.Node)
	if !in {
		return
	}
	g.self = s.Node
	var peers []transport.Peer
	for _, m := range view.Members {
		if m.Node != g.self {
			peers = append(peers, transport.Peer{Node: m.Node, Name: m.Name, Addr: m.PeerAddr})
		}
	}
	for _, u := range g.links.SetPeers(g.self, peers) {
		if p := g.pool(u.Pool); p != nil {
			p.unsent(&u.Message)
		}
	}
	if self.Witness {
		return
	}
	g.size.Store(int64(len(view.Serving())))
	for _, spec := range view.Pools {
		g.followPool(g.self, view, spec)
	}
}

// left reports that the incarnation is out of the view because it left in
// order: nothing of it was in flight, and no lease of it is waited for. A gateway that has
// broken off what it had is about to stop; the leader may refuse it a lease before the
// view without it has come here.
func (g *Gateway) left() bool {
	if g.broken.Load() {
		return true
	}
	gone, known := g.views.View().LostMember(g.self)
	return g.draining.Load() && known && !gone.Leased
}

// comeBack rejoins once nothing of the incarnation before is in flight: then its
// tokens need not be withheld any longer.
func (g *Gateway) comeBack(ended []<-chan struct{}) {
	const patience = 5 * time.Second // not a bound: then a warning says so
	late := time.AfterFunc(patience, func() {
		g.cfg.Logger.Warn("aborted requests have not ended yet: this gateway waits for them before it rejoins")
	})
	defer late.Stop()
	for _, ch := range ended {
		select {
		case <-ch:
		case <-g.ctx.Done():
			return
		}
	}
	g.ending.Store(false)
	g.views.Rejoin()
}

// void ends everything of the present incarnation: nothing waits any more, and
// what is in flight is being broken off. The channels are closed when that is
// done. Unless the incarnation has left in order this is a lost lease.
func (g *Gateway) void(left bool) []<-chan struct{} {
	g.mu.Lock()
	pools := g.pools
	g.pools = make(map[string]*poolDriver)
	g.mu.Unlock()
	refused, aborted := 0, 0
	var ended []<-chan struct{}
	for _, p := range pools {
		r, a, ch := p.void()
		refused, aborted = refused+r, aborted+a
		if ch != nil {
			ended = append(ended, ch)
		}
	}
	g.links.SetPeers(0, nil)
	if !left || refused+aborted > 0 {
		g.cfg.Observer.LeaseLost()
		g.cfg.Logger.Warn("lease lost: rejoining as a new incarnation",
			slog.Uint64("node", uint64(g.self)), slog.Int("refused", refused), slog.Int("aborted", aborted))
	}
	g.self = 0
	return ended
}
