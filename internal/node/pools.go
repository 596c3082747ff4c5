package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// pools is this gateway's part in the pools, and their terms in the cluster.
type pools struct {
	gateway *gateway.Gateway
	peers   *peers
	log     *slog.Logger
	servers *servers
	// configured are the pools as this gateway is configured now, by name.
	configured atomic.Pointer[map[string]Pool]
}

// newPools returns pools that are ready for links and do nothing before the gateway starts.
func newPools(cfg Config, p *peers, suspect func(pool, upstream string)) *pools {
	g := gateway.New(gateway.Config{
		Suspect: suspect, DataDir: cfg.DataDir, Observer: poolObservers{cfg.Metrics}, Logger: cfg.Logger,
	})
	out := &pools{gateway: g, peers: p, log: cfg.Logger, servers: &servers{lookUp: proxy.LookUp}}
	out.configure(cfg.Pools)
	return out
}

// configure takes over the pools of a configuration.
func (p *pools) configure(all []Pool) {
	configured, limits := make(map[string]Pool, len(all)), make(map[string]Limits, len(all))
	for _, pool := range all {
		configured[pool.Name], limits[pool.Name] = pool, pool.Limits
	}
	p.gateway.Configure(limits)
	p.configured.Store(&configured)
}

// holdMax returns how long a pool's slots may be held; 0: there is no limit.
func (p *pools) holdMax(pool string) time.Duration { return (*p.configured.Load())[pool].HoldMax }

// define proposes pools until the cluster has them, and logs where the agreed values differ. It
// returns nil when ctx ends.
func (p *pools) define(ctx context.Context, all []Pool) error {
	cluster := p.peers.cluster
	if cluster.Ready(ctx) != nil {
		return nil
	}
	for i := range all {
		pool := &all[i]
		spec := pool.spec()
		define := cluster.DefinePool
		if len(pool.named()) > 0 {
			define = func(ctx context.Context, _ membership.Pool) error { return p.defineNamed(ctx, pool, &spec) }
		}
		err := define(ctx, spec)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pool %s: %w", pool.Name, err)
		}
		if err := p.holdFits(pool); err != nil {
			return err
		}
		if agreed, ok := cluster.View().Pool(pool.Name); ok && !agreesOn(agreed, spec) {
			p.log.Warn("the cluster has agreed on other values for a pool than the configuration has: the cluster's apply",
				slog.String("pool", pool.Name), slog.Int("agreed_k", agreed.K), slog.Int("configured_k", spec.K),
				slog.String("agreed_binding", string(agreed.Binding)), slog.String("configured_binding", string(spec.Binding)),
				slog.String("agreed_reclaim", string(agreed.Reclaim)), slog.String("configured_reclaim", string(spec.Reclaim)),
				slog.Duration("agreed_hold_max", agreed.HoldMax), slog.Duration("configured_hold_max", spec.HoldMax),
				slog.Any("agreed_rate", agreed.Rate), slog.Any("configured_rate", spec.Rate),
				slog.Any("agreed_upstreams", kOfEach(agreed.Classes)), slog.Any("configured_upstreams", kOfEach(spec.Classes)))
		}
	}
	return nil
}

// spec returns the part of a pool's configuration that the cluster agrees on, without the servers
// of names.
func (p *Pool) spec() membership.Pool {
	spec := membership.Pool{Name: p.Name, K: p.K, Binding: p.Binding, Reclaim: p.Reclaim, Rate: p.Rate}
	for _, u := range p.Upstreams {
		if k := admission.UpstreamK(u); k > 0 {
			spec.Classes = append(spec.Classes, membership.Class{Upstream: admission.UpstreamURL(u), K: k})
		}
	}
	if p.Reclaim == admission.ReclaimHold {
		spec.HoldMax = p.HoldMax
	}
	return spec
}

// agreesOn reports whether the agreed pool has the configured values.
func agreesOn(agreed, spec membership.Pool) bool {
	return agreed.K == spec.K && agreed.Binding == spec.Binding && agreed.Rate == spec.Rate &&
		agreed.Reclaim == spec.Reclaim && agreed.HoldMax == spec.HoldMax && slices.EqualFunc(agreed.Classes, spec.Classes, sameClass)
}

// kOfEach returns the k of each upstream.
func kOfEach(classes []membership.Class) map[string]int {
	out := make(map[string]int, len(classes))
	for _, c := range classes {
		out[c.Upstream] = c.K
	}
	return out
}

func sameClass(a, b membership.Class) bool { return a.Upstream == b.Upstream && a.K == b.K }

// holdFits returns an error if requests of a pool could hold their slots for longer than the cluster
// waits before it gives a lost gateway's slots to others.
func (p *pools) holdFits(pool *Pool) error {
	agreed, ok := p.peers.cluster.View().Pool(pool.Name)
	if !ok || agreed.Reclaim != admission.ReclaimHold || pool.HoldMax > 0 && pool.HoldMax <= agreed.HoldMax {
		return nil
	}
	return fmt.Errorf("pool %s: the longest hold is %v, but the cluster withholds the slots of lost gateways for %v: set the longest hold to %v or less",
		pool.Name, pool.HoldMax, agreed.HoldMax, agreed.HoldMax)
}

// unknown returns the pools that the cluster does not have yet.
func (p *pools) unknown(all []Pool) []Pool {
	known := make(map[string]bool)
	for _, s := range p.gateway.Pools() {
		known[s.Name] = true
	}
	var out []Pool
	for _, pool := range all {
		if !known[pool.Name] {
			out = append(out, pool)
		}
	}
	return out
}

// forming returns the name of an agreed pool that cannot grant a request here yet; "" if all can.
func (p *pools) forming() string {
	begun := make(map[string]bool)
	for _, s := range p.gateway.Pools() {
		begun[s.Name] = s.Begun
	}
	for _, pool := range p.peers.cluster.View().Pools {
		if !begun[pool.Name] {
			return pool.Name
		}
	}
	return ""
}

func (p *pools) inFlight() int {
	total := 0
	for _, s := range p.gateway.Pools() {
		total += s.InFlight
	}
	return total
}

// poolObservers makes the pools' observers.
type poolObservers struct{ m *telemetry.Metrics }

var _ gateway.Observer = poolObservers{}

func (o poolObservers) Pool(name string) gateway.PoolObserver {
	return poolObserver{o.m.Pool(name), o.m}
}

func (o poolObservers) LeaseLost() { o.m.LeaseLost() }

func (o poolObservers) TicketsWritten(took time.Duration) {
	o.m.DiskWrite(telemetry.DiskTickets, took)
}

// poolObserver counts the events of a pool's machine and gateway. The embedded metrics implement most
// methods.
type poolObserver struct {
	*telemetry.Pool
	all *telemetry.Metrics
}

// Moved implements gateway.PoolObserver.
func (o poolObserver) Moved(t kmutex.Trace) {
	switch t.Kind {
	case kmutex.TraceQueued:
		o.all.Hops(uint32(t.Count))
	case kmutex.TraceBatonSent:
		o.BatonMoved()
	default: // nothing to count
	}
}

// Recovered implements gateway.PoolObserver.
func (o poolObserver) Recovered(why gateway.Reason, took time.Duration) {
	o.Pool.Recovered(string(why))
	o.all.RecoveryTook(took)
}
