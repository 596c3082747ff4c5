package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/proxy"
)

// logViews logs which gateways come and go, by name, until ctx ends. It begins with
// the view that this gateway is in: what was agreed before it came is no news.
func (n *node) logViews(ctx context.Context) {
	if n.cluster.Ready(ctx) != nil {
		return
	}
	before := n.cluster.View()
	for {
		changed := n.cluster.Changed()
		now := n.cluster.View()
		if now.Number != before.Number {
			logView(n.log, before, now)
			before = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// logView logs what is different in a newer view.
func logView(log *slog.Logger, before, now *membership.View) {
	log = log.With(slog.Uint64("view", now.Number), slog.Int("gateways", len(now.Members)))
	for _, m := range before.Members {
		if _, in := now.Member(m.Node); in {
			continue
		}
		gone, known := now.LostMember(m.Node)
		if known && gone.Leased {
			log.Warn("gateway lost: its slots come back when its lease has run out", slog.String("name", m.Name),
				slog.Uint64("node", uint64(m.Node)), slog.String("reason", "the leader has suspended it, or it left with requests in flight"))
		} else {
			log.Info("gateway left", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)),
				slog.String("reason", "it was stopped in order"))
		}
	}
	for _, m := range now.Members {
		if _, in := before.Member(m.Node); !in {
			log.Info("gateway joined", slog.String("name", m.Name), slog.Uint64("node", uint64(m.Node)), slog.String("peer_address", m.PeerAddr))
		}
	}
	for _, l := range before.Lost {
		if gone, known := now.LostMember(l.Node); l.Leased && known && !gone.Leased {
			log.Info("the lease of a lost gateway has run out: its slots come back", slog.String("name", l.Name), slog.Uint64("node", uint64(l.Node)))
		}
	}
	for _, p := range now.Pools {
		switch was, known := before.Pool(p.Name); {
		case !known:
			log.Info("pool agreed", slog.String("pool", p.Name), slog.Int("k", p.K))
		case was.K != p.K:
			log.Info("k changed", slog.String("pool", p.Name), slog.Int("old", was.K), slog.Int("new", p.K))
		}
	}
}

// refusalLog tells of refused requests without a line for each: of each kind the
// first one in a minute, and how many there were at the end of it. It is safe for
// concurrent use.
type refusalLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards counts
	counts map[refusalKind]int
}

// refusalKind has few values: pools and outcomes come from short lists.
type refusalKind struct{ pool, outcome string }

// refusalSummary is how often the counts are logged.
const refusalSummary = time.Minute

// add counts a request that has ended.
func (l *refusalLog) add(r *proxy.Record) {
	if !r.Outcome.Refused() {
		return
	}
	kind := refusalKind{r.Pool, r.Outcome.String()}
	l.mu.Lock()
	l.counts[kind]++
	first := l.counts[kind] == 1
	l.mu.Unlock()
	if first {
		l.log.Info("request refused", slog.String("pool", kind.pool), slog.String("outcome", kind.outcome), slog.Int("status", r.Status),
			slog.Float64("wait_ms", millis(r.Wait)), slog.String("hint", "the first of its kind in this minute; a summary follows"))
	}
}

// run logs the summaries until ctx ends.
func (l *refusalLog) run(ctx context.Context) {
	tick := time.NewTicker(refusalSummary)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.summarize()
		case <-ctx.Done():
			return
		}
	}
}

func (l *refusalLog) summarize() {
	l.mu.Lock()
	counts := l.counts
	l.counts = make(map[refusalKind]int)
	l.mu.Unlock()
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b refusalKind) int {
		return slices.Compare([]string{a.pool, a.outcome}, []string{b.pool, b.outcome})
	}) {
		l.log.Info("requests refused in the last minute", slog.String("pool", kind.pool), slog.String("outcome", kind.outcome),
			slog.Int("requests", counts[kind]))
	}
}
