package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// proxyConfig returns the whole configuration of the proxy.
func (n *Node) proxyConfig(cfg Config) proxy.Config {
	out := cfg.Proxy
	out.Pools = make([]proxy.Pool, len(cfg.Pools))
	for i, p := range cfg.Pools {
		out.Pools[i] = p.Pool
	}
	g := n.pools.gateway
	out.Admitter, out.Tickets, out.Observer = g, g, requestObserver{n.cfg.Metrics, n.refusals}
	out.Gateway, out.Logger = n.cfg.Name, n.cfg.Logger
	out.Bar = g.Bar
	out.Standing, out.Draining = n.peers.entitled, n.leaving.Load
	out.TicketHandler = n.ticketHandler(cfg.Pools)
	return out
}

// errEnds is the answer for clients that wait for tickets when the gateway ends: other
// gateways answer for them.
var errEnds = fmt.Errorf("%w: this gateway is shutting down", admin.ErrUnavailable)

// ticketHandler serves tickets on the client address, for pools that allow it; nil if none does.
func (n *Node) ticketHandler(pools []Pool) http.Handler {
	open := make(map[string]bool)
	for _, p := range pools {
		if p.Tickets {
			open[p.Name] = true
		}
	}
	if len(open) == 0 {
		return nil
	}
	h := admin.NewTicketHandler(admin.TicketConfig{
		Tickets: n.pools.gateway, Asks: proxy.TicketRequest, Open: func(pool string) bool { return open[pool] }, Pages: proxy.MayUseTickets,
		MaxTTL: proxy.MaxTicketTTL, Log: n.cfg.Logger,
	})
	// A client that waits for its ticket would keep the server from shutting down.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		if n.serving.Err() == nil {
			defer context.AfterFunc(n.serving, func() { cancel(context.Cause(n.serving)) })()
		} else {
			defer time.AfterFunc(time.Second, func() { cancel(context.Cause(n.serving)) }).Stop()
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

var (
	_ proxy.Admitter  = (*gateway.Gateway)(nil)
	_ proxy.Tickets   = (*gateway.Gateway)(nil)
	_ proxy.PacedSlot = (*gateway.Slot)(nil)
	_ proxy.PacedSlot = (*gateway.Redeemed)(nil)
	_ proxy.AgainSlot = (*gateway.Slot)(nil)
	_ proxy.AgainSlot = (*gateway.Redeemed)(nil)
	_ proxy.Observer  = requestObserver{}
	_ admin.Tickets   = (*gateway.Gateway)(nil)
)

// requestObserver counts ended requests.
type requestObserver struct {
	m        *telemetry.Metrics
	refusals *refusalLog
}

func (o requestObserver) Admitted(r *proxy.Record) {
	traceID := ""
	if r.Sampled {
		traceID = r.TraceID
	}
	o.m.Pool(r.Pool).Admitted(time.Now(), r.Wait, traceID)
}

func (o requestObserver) Done(r *proxy.Record) {
	p := o.m.Pool(r.Pool)
	p.Outcome(r.Outcome)
	p.Answered(r.Status, r.RequestBytes, r.Bytes)
	p.Retried(r.Retries)
	p.Connected(int(r.NewConns), int(r.ReusedConns))
	o.refusals.add(r)
	if r.Hold > 0 { // it was admitted
		p.Hold(r.Hold)
	} else {
		p.Refused(r.Outcome, r.Wait)
	}
	if r.FirstByte > 0 {
		p.Upstream(r.FirstByte)
	}
	var recent telemetry.Recent
	if result, sent := resultOf(r); sent {
		recent = p.AddUpstream(*r.UpstreamURL).Ended(result, r.FirstByte)
	}
	if r.Outcome.Refused() {
		recent.Refused = 1
		if r.Outcome == admission.QueueFull.Outcome() {
			recent.Full = 1
		}
	}
	p.Count(recent)
}

// resultOf returns the result of a request at its upstream, and whether it was sent to an upstream.
func resultOf(r *proxy.Record) (result telemetry.Result, sent bool) {
	if r.UpstreamURL == nil || r.Pool == "" {
		return "", false
	}
	switch {
	case r.Outcome == admission.OutcomeUpstreamError && r.DialFailed:
		return telemetry.ResultDial, true
	case r.Outcome == admission.OutcomeUpstreamError && r.Status == http.StatusGatewayTimeout:
		return telemetry.ResultTimeout, true
	case r.Outcome == admission.OutcomeUpstreamError:
		return telemetry.ResultBroken, true
	case r.UpstreamStatus > 0:
		return telemetry.ResultOf(r.UpstreamStatus), true
	case r.Outcome == admission.OutcomeAdmitted && r.Status == 0: // TCP
		return telemetry.Result1xx, true
	default:
		return telemetry.ResultLeft, true
	}
}

// refusalLog logs refused requests: the first of each kind in a minute, and at the end of the minute
// their number. It is safe for concurrent use.
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

// run logs the summaries until ctx ends, and the last one then.
func (l *refusalLog) run(ctx context.Context) {
	tick := time.NewTicker(refusalSummary)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.summarize()
		case <-ctx.Done():
			l.summarize()
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
