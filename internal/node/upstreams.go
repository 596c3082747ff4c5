package node

import (
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// agreeOnUpstreams tells the proxy what a view says of upstreams.
func (n *Node) agreeOnUpstreams(view *membership.View) {
	for _, p := range view.Pools {
		var all []string
		for _, c := range p.Classes {
			all = append(all, c.Upstream)
		}
		n.proxy.Agree(p.Name, all)
	}
}

// upstreams returns what this gateway knows of a pool's upstreams.
func (r *report) upstreams(p *gateway.PoolStatus) []admin.Upstream {
	var out []admin.Upstream
	counts := r.cfg.Metrics.Pool(p.Name)
	for u := range r.upstreamsOf(p.Name) {
		one := upstream(u, counts.AddUpstream(u.URL))
		one.K, one.SlotsInUse = slotsFor(p, u.URL)
		out = append(out, one)
	}
	return out
}

// upstreamsOf yields what the proxy knows of a pool's upstreams. None is quiet for longer than this
// process runs: after a stop, its answers may wait here to be read.
func (r *report) upstreamsOf(pool string) iter.Seq[*proxy.UpstreamStatus] {
	return func(yield func(*proxy.UpstreamStatus) bool) {
		for _, u := range r.proxy.Upstreams() {
			if u.Quiet = min(u.Quiet, r.awake.since(time.Now())); u.Pool == pool && !yield(&u) {
				return
			}
		}
	}
}

// awake knows since when this process has run without a stop: a signal, a debugger, a machine that
// gave it no processor.
type awake struct {
	mu       sync.Mutex
	from, at time.Time // at: when it was last asked
}

// since returns for how long it has run. It is to be asked every second, by anybody: a longer gap is
// a stop.
func (a *awake) since(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.at) > 2*lookEvery {
		a.from = now
	}
	a.at = now
	return now.Sub(a.from)
}

// slotsFor returns the k of an upstream, nil if it has none of its own, and how many of its slots are
// in use here.
func slotsFor(p *gateway.PoolStatus, url string) (k *int, inUse int) {
	for _, c := range p.Upstreams {
		if c.URL == url {
			return &c.K, c.InUse
		}
	}
	return nil, 0
}

func upstream(u *proxy.UpstreamStatus, counts *telemetry.Upstream) admin.Upstream {
	now, usual := counts.Headers()
	out := admin.Upstream{
		URL: u.URL, Up: u.Healthy, InFlight: u.InFlight, Unanswered: u.Unanswered, QuietSeconds: u.Quiet.Seconds(),
		Recent: recent(counts.Recent()), Header: times(now), Usual: times(usual),
	}
	if !u.Answered.IsZero() {
		out.AnsweredSeconds = time.Since(u.Answered).Seconds()
	}
	if !u.Healthy {
		out.DownSeconds = time.Since(u.Since).Seconds()
		if u.Why != nil {
			out.Why = u.Why.Error()
		}
	}
	return out
}

func recent(r telemetry.Recent) admin.Recent {
	return admin.Recent{Ended: r.Ended, Errors: r.Errors, Failed: r.Failed, Refused: r.Refused, Full: r.Full}
}

func times(w telemetry.Window) admin.Times {
	return admin.Times{Count: w.Count, MeanMillis: millis(w.Mean())}
}

// upstreamLog logs when an upstream has become silent, slow, or full of errors, and when that
// is over. The proxy logs those that are down.
type upstreamLog struct {
	log *slog.Logger
	was map[string]map[string]upstreamWas // by pool and URL
}

// upstreamWas is what an upstream was at the last look.
type upstreamWas struct {
	word string
	down time.Time // when it was down last
}

// look compares the upstreams of a pool with what they were.
func (l *upstreamLog) look(pool string, all []admin.Upstream, now time.Time) {
	before, after := l.was[pool], make(map[string]upstreamWas, len(all)) // a name's servers come and go
	defer func() { l.was[pool] = after }()
	for _, u := range all {
		it, word := before[u.URL], u.Word()
		was := it.word
		if !u.Up {
			it.down = now
		}
		if u.Up && word == admin.UpstreamFailing && now.Sub(it.down) < time.Minute {
			word = was // the errors of the last minute may be those while it was down
		}
		it.word = word
		after[u.URL] = it
		log := l.log.With(slog.String("pool", pool), slog.String("upstream", u.URL))
		switch {
		case word == was:
		case word == admin.UpstreamSilent:
			log.Warn("upstream is silent", slog.Int("unanswered", u.Unanswered), slog.Float64("quiet_s", u.QuietSeconds))
		case word == admin.UpstreamFailing:
			log.Warn("upstream fails requests", slog.Uint64("requests", u.Recent.Ended), slog.Uint64("answered_5xx", u.Recent.Errors),
				slog.Uint64("unanswered", u.Recent.Failed), slog.String("hint", "of the last 60 s"))
		case word == admin.UpstreamSlow:
			log.Warn("upstream is slow", slog.Float64("answers_in_ms", u.Header.MeanMillis), slog.Float64("usually_ms", u.Usual.MeanMillis))
		case word == admin.UpstreamUp && (was == admin.UpstreamSilent || was == admin.UpstreamFailing || was == admin.UpstreamSlow):
			log.Info("upstream answers as usual again", slog.String("was", was))
		}
	}
}
