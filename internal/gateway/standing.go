package gateway

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// follower takes over the agreed views, and this gateway's standing in them: see the package's
// comment.
type follower struct {
	*pools
	writer diskWriter
	// self is watch's alone: the incarnation that the pools are of, 0 none.
	self kmutex.Node
	// ending: what the incarnation before had in flight is being ended.
	ending atomic.Bool
}

// watch follows the views, and the lease to its end, until Close.
func (f *follower) watch() {
	lapse := time.NewTimer(0)
	defer lapse.Stop()
	for {
		changed := f.views.Changed()
		f.follow()
		if left := f.views.Standing().Until.Sub(f.now()); left > 0 {
			lapse.Reset(left)
		}
		select {
		case <-changed:
		case <-lapse.C:
		case <-f.ctx.Done():
			return
		}
	}
}

// follow takes over the newest agreed view and this gateway's standing in it.
func (f *follower) follow() {
	s := f.views.Standing()
	// A lapsed incarnation is over, also while the views still name it: it must
	// not be taken up again as one that runs nothing.
	over := s.Node == 0 || !s.Until.IsZero() && !f.now().Before(s.Until)
	if f.self != 0 && (over || s.Node != f.self) {
		left := f.left()
		ended := f.void(left)
		f.ending.Store(true) // for good, if it has left
		if !left {
			f.wg.Go(func() { f.comeBack(ended) })
		}
		return // comes back as another incarnation, in a view to come
	}
	if over {
		if !f.ending.Load() {
			f.views.Rejoin() // should it have been lost before it was followed here
		}
		return
	}
	view := f.views.View()
	self, in := view.Member(s.Node)
	if !in {
		return
	}
	f.self = s.Node
	var peers []transport.Peer
	for _, m := range view.Members {
		if m.Node != f.self {
			peers = append(peers, transport.Peer{Node: m.Node, Name: m.Name, Addr: m.PeerAddr})
		}
	}
	for _, u := range f.links.SetPeers(f.self, peers) {
		if p := f.pool(u.Pool); p != nil {
			p.unsent(&u.Message)
		}
	}
	if self.Witness {
		return
	}
	f.size.Store(int64(len(view.Serving())))
	for _, spec := range view.Pools {
		if spec.Tickets > 0 {
			f.writer.open(view.Cluster)
		}
		f.pools.follow(f.self, view, spec)
	}
}

// left reports that the incarnation is out of the view because it left in
// order: nothing of it was in flight, and no lease of it is waited for. A gateway that has
// aborted what it had is about to stop; the leader may refuse it a lease before the
// view without it has come here.
func (f *follower) left() bool {
	if f.broken.Load() {
		return true
	}
	gone, known := f.views.View().LostMember(f.self)
	return f.draining.Load() && known && !gone.Leased
}

// comeBack rejoins once nothing of the incarnation before is in flight: then its
// tokens need not be withheld any longer.
func (f *follower) comeBack(ended []*poolDriver) {
	const patience = 5 * time.Second // not a bound: then a warning says so
	late := time.AfterFunc(patience, func() {
		f.cfg.Logger.Warn("aborted requests have not ended yet: this gateway waits for them before it rejoins")
	})
	defer late.Stop()
	if untilIdle(f.ctx, ended) != nil {
		return
	}
	f.ending.Store(false)
	f.views.Rejoin()
}

// void ends everything of the present incarnation: nothing waits any more, and
// what is in flight is being aborted. It returns the pools that this was in. Unless
// the incarnation has left in order this is a lost lease.
func (f *follower) void(left bool) []*poolDriver {
	all := f.takeAll()
	refused, aborted := 0, 0
	for _, p := range all {
		r, a := p.void()
		refused, aborted = refused+r, aborted+a
	}
	f.links.SetPeers(0, nil)
	if !left || refused+aborted > 0 {
		f.cfg.Observer.LeaseLost()
		f.cfg.Logger.Warn("lease lost: rejoining as a new incarnation",
			slog.Uint64("node", uint64(f.self)), slog.Int("refused", refused), slog.Int("aborted", aborted))
	}
	f.self = 0
	return all
}
