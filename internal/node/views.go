package node

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kgate/kgate/internal/membership"
)

// followViews tells the proxy which upstreams have a k of their own, and logs the gateways that come and
// go, by name, until ctx ends. The log begins with the first view that has this gateway.
func (n *Node) followViews(ctx context.Context) {
	cluster := n.peers.cluster
	var logged *membership.View
	for {
		changed, view := cluster.Changed(), cluster.View()
		n.agreeOnUpstreams(view)
		if _, in := cluster.Self(); logged == nil && in {
			logged = view
		}
		if logged != nil && logged.Number != view.Number {
			n.peers.history.logView(n.cfg.Logger, logged, view)
			logged = view
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// logView logs the changes in a newer view, and keeps them for the status page.
func (h *history) logView(log *slog.Logger, before, now *membership.View) {
	log = log.With(slog.Uint64("view", now.Number), slog.Int("gateways", len(now.Members)))
	for _, m := range before.Members {
		if _, in := now.Member(m.Node); in {
			continue
		}
		switch gone, known := now.LostMember(m.Node); {
		case known && gone.Leased:
			log.Warn("gateway lost: its slots come back when its lease has run out", slog.String("name", m.Name),
				slog.Uint64("node", uint64(m.Node)), slog.String("reason", gone.Reason))
			h.add("", m.Name+" is lost: "+gone.Reason)
		case known && m.Witness && gone.Reason != membership.Stopped:
			log.Warn("witness lost", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)), slog.String("reason", gone.Reason))
			h.add("", m.Name+" is lost: "+gone.Reason)
		case known && gone.Reason != membership.Stopped: // seen late, or the gateway ended its lease itself
			log.Warn("gateway lost: its slots have come back", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)), slog.String("reason", gone.Reason))
			h.add("", m.Name+" was lost: "+gone.Reason)
		default:
			h.add("", m.Name+" left")
			log.Info("gateway left", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)), slog.String("reason", gone.Reason))
		}
	}
	for _, m := range now.Members {
		if _, in := before.Member(m.Node); !in {
			h.add("", m.Name+" joined")
			log.Info("gateway joined", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)), slog.String("peer_address", m.PeerAddr))
		}
	}
	for _, l := range before.Lost {
		if gone, known := now.LostMember(l.Node); l.Leased && known && !gone.Leased {
			h.add("", "the lease of "+l.Name+" has run out: its slots come back")
			log.Info("the lease of a lost gateway has run out: its slots come back", slog.String("name", l.Name), slog.Uint64("node", uint64(l.Node)))
		}
	}
	for _, p := range now.Pools {
		switch was, known := before.Pool(p.Name); {
		case !known:
			log.Info("pool agreed", slog.String("pool", p.Name), slog.Int("k", p.K))
		case was.K != p.K:
			h.add(p.Name, fmt.Sprintf("k of %s: %d, before %d", p.Name, p.K, was.K))
			log.Info("k changed", slog.String("pool", p.Name), slog.Int("old", was.K), slog.Int("new", p.K))
		case was.Rate != p.Rate:
			h.add(p.Name, "the rate of "+p.Name+" was changed")
			log.Info("rate changed", slog.String("pool", p.Name), slog.Int64("down", p.Rate.Down), slog.Int64("up", p.Rate.Up))
		}
	}
}
