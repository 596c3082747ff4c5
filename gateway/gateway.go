package gateway

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/inside"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// Gateway is a Node that is a reverse proxy, too. Its methods are safe for concurrent use.
type Gateway struct {
	*kgate.Node
	node    *node.Node
	process Process
	version string
	tokens  func() []string
}

// Start starts a gateway: see [kgate.Start].
func Start(ctx context.Context, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	started, err := inside.Start(ctx, cfg.kgate(), cfg.edit)
	if err != nil {
		return nil, err
	}
	g := &Gateway{Node: started.(*kgate.Node), process: cfg.Process, version: cfg.Version, tokens: cfg.AdminTokens}
	g.node, _ = inside.Open(g.Node)
	return g, nil
}

// Reload applies the Pools, the Routes and all else in cfg that concerns requests to requests
// that arrive from now on. Those that wait keep their places. Names, addresses, Process and the
// settings of Peers stay as they were at Start. On an error nothing has changed.
func (g *Gateway) Reload(cfg Config) error {
	cfg.Process, cfg.Version, cfg.AdminTokens = g.process, g.version, g.tokens
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return err
	}
	return inside.Reload(g.Node, cfg.kgate(), cfg.edit)
}

// Handler returns the whole proxy: it finds the route of a request, waits for a slot of
// the route's pool and forwards the request to an upstream. Any http.Server may serve
// it; that of downstream.NewServer, which `kgate serve` uses, also limits what clients can
// hold.
func (g *Gateway) Handler() *proxy.Handler {
	g.Done() // panics where the gateway was not started
	return g.node.Handler()
}

// SetRate changes how many bytes per second the pool's requests may move to clients
// and from clients, over all nodes; 0: no limit. It tries until ctx ends, and returns when no
// node uses the rate before.
func (g *Gateway) SetRate(ctx context.Context, pool string, rate Rate) error {
	if err := g.Err(); err != nil {
		return inside.Told(g.Node, err)
	}
	return inside.Told(g.Node, g.node.SetRate(ctx, pool, node.Rate(rate)))
}

// SetUpstreamK changes the k of one upstream of a pool in the whole cluster. One that the pool does
// not have is added; with k 0 it takes no new requests. The upstreams of the pool must have a k of
// their own: see Pool.Upstreams.
func (g *Gateway) SetUpstreamK(ctx context.Context, pool, upstream string, k int) error {
	if err := g.Err(); err != nil {
		return inside.Told(g.Node, err)
	}
	return inside.Told(g.Node, g.node.SetUpstreamK(ctx, pool, upstream, k, 0))
}

// Rate is in bytes per second: Down to clients, Up from clients; 0: no limit.
type Rate struct{ Down, Up int64 }

// SetPeerTLS replaces [kgate.Peers].TLS: connections whose certificates it does not accept end. A
// node that has begun without TLS cannot change to it. On an error nothing has changed.
func (g *Gateway) SetPeerTLS(cfg *tls.Config) error {
	if err := g.Err(); err != nil {
		return inside.Told(g.Node, err)
	}
	return inside.Told(g.Node, g.node.SetPeerTLS(cfg))
}

// Admin returns the status page, the API and the metrics of a node, for operators. The page works
// behind http.StripPrefix. Changes require a token, see [Config.AdminTokens], or have to
// come from this machine, as all requests do that a proxy on this machine passes on.
func Admin(n *kgate.Node) http.Handler {
	in, _ := inside.Open(n)
	if in == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "this Node was not started: take the one that kgate.Start returns", http.StatusServiceUnavailable)
		})
	}
	return in.Admin()
}

// Collector returns the metrics of a node, for the registry of the program: the kgate_* ones, with
// the label gateway.
func Collector(n *kgate.Node) prometheus.Collector {
	if _, metrics := inside.Open(n); metrics != nil {
		return metrics.(prometheus.Collector)
	}
	return new(collectorList)
}
