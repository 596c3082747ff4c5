package kgate

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// Config of a [Node]. The zero value, with a pool, is a node alone.
type Config struct {
	// Name of the node, unique in its cluster. Default: the host name.
	Name string
	// Version of the program, for people. Default: that of the module kgate.
	Version string
	// DataDir keeps what the cluster has agreed on, and tickets, over a restart. Empty:
	// in memory only.
	DataDir string
	// Peers says how this node and the others reach each other.
	Peers Peers
	// Pools of which this node serves requests. The nodes of a cluster that give a pool
	// the same name share its k slots.
	Pools []Pool
	// Witness makes this a node that votes in its cluster and serves nothing: it has no
	// pools. With one, two nodes survive the loss of any of the three.
	Witness bool
	// Routes of Handler, in order: the first that matches takes the request. None: all
	// requests go to the only pool, if that has upstreams.
	Routes []proxy.Route
	// TCP says which pool serves the connections of a listener of [proxy.Server.ServeTCP].
	TCP []proxy.TCP
	// Edge is how Handler meets its clients.
	Edge proxy.Edge
	// TrustedProxies are the peers whose X-Forwarded-* headers Handler believes and
	// passes on, and of whose requests X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix
	// ClientAddr returns the address of a request's client. Nil: as TrustedProxies says.
	ClientAddr func(*http.Request) netip.Addr
	// ServeWaiting has Drain and Shutdown serve the requests that wait.
	ServeWaiting bool
	// AdminTokens returns the tokens that changes over Admin need, the same on every
	// node: the first is shown to other nodes, all are accepted. Nil: changes need none,
	// and have to come from this machine.
	AdminTokens func() []string
	// TracerProvider makes the spans of waits, and of Handler's requests; nil: there are
	// none.
	TracerProvider trace.TracerProvider
	// SampleRatio is the share of Handler's requests to sample, 0 to 1. A request with a
	// trace context brings the decision with it.
	SampleRatio float64
	// AccessLog is the form of a line for each of Handler's requests, by default none.
	// AccessWriter takes the lines, but those of proxy.AccessStructured, which are
	// Logger's.
	AccessLog    proxy.AccessFormat
	AccessWriter io.Writer
	// Logger; nil: silent.
	Logger *slog.Logger
	// Process is for a program that is nothing but a node, such as `kgate serve`.
	Process Process
}

// Process joins a node to a program of its own. Where the node is a part of the program,
// the zero value is right.
type Process struct {
	// Metrics count in place of the node's own; then the node as a collector has none.
	Metrics *telemetry.Metrics
	// Gatherer is what Admin shows as /metrics. Nil: the node's metrics, Go's and those
	// of the process.
	Gatherer prometheus.Gatherer
	// State adds to what Metrics mirror.
	State func(*telemetry.State)
	// Profiles serves Admin's /debug/pprof/, for this machine alone. Nil: there are none.
	Profiles http.Handler
	// OnLeave is called when an operator has the node leave, and must not wait. Nil: the
	// node shuts down.
	OnLeave func()
}

// Peers says how this node and the others of its cluster reach each other.
type Peers struct {
	// Listen is the TCP address for other nodes, default ":7080"; Gossip the UDP and TCP
	// address for finding them, default ":7946". The defaults of a node alone without a
	// Key are free ports of 127.0.0.1.
	Listen, Gossip string
	// Advertise is the address at which the others reach both. Default: that of Listen if
	// it is one address, else this machine's first private one.
	Advertise netip.Addr
	// Join are gossip addresses, host:port, of other nodes; one that answers is enough.
	// With none, this node begins a cluster, or waits for Expect nodes to do so.
	Join []string
	// Expect is how many nodes begin a new cluster together; the same on each of them.
	// 0: the node is alone or, if it has somebody to Join, never begins one.
	Expect int
	// Lease is how long a node may have requests in flight without news of the others,
	// and how long the slots of a lost one are withheld; default 3 s. The cluster keeps
	// what it began with.
	Lease time.Duration
	// Replicas is how many other nodes keep copies of this node's tickets; default 2,
	// at least 1.
	Replicas int
	// Key is the content of the cluster's key file, as `kgate keygen` makes it: it guards
	// all that nodes say to each other. In its place there may be TLS and GossipKeys.
	Key []byte
	// TLS has the certificate and the authorities for mutual TLS. The certificate must
	// have the node's Name.
	TLS *tls.Config
	// GossipKeys have 32 bytes each: the first encrypts, all decrypt.
	GossipKeys [][]byte
	// Insecure lets nodes talk in the clear on addresses that other machines reach.
	// Whoever reaches them can then take part.
	Insecure bool
}

// Pool of slots that nodes share.
type Pool struct {
	// Name of the pool: 1 to 64 of a-z, 0-9, - _ and the dot.
	Name string
	// K is how many slots a new pool has, over all nodes. One that the cluster knows keeps
	// its own: see [Node.SetK].
	K int
	// EarlyBinding ties a request to a slot on arrival, as the published algorithm does,
	// and not when a slot is free.
	EarlyBinding bool
	// ReclaimHold withholds the slots of a lost node for HoldMax, not only for its lease:
	// for upstreams that go on with a request whose client is gone.
	ReclaimHold bool

	// QueueLimit bounds the requests that wait at this node; default 10000.
	QueueLimit int
	// QueueTimeout is the longest wait of Middleware and Handler, default 60 s; negative:
	// no limit. Acquire waits as long as its context.
	QueueTimeout time.Duration
	// Fair serves clients in turn, each with one request at a time.
	Fair bool
	// ClientLimit bounds how many requests of one client wait, ClientInFlight how many
	// slots it has at a time, ClientTickets how many tickets, at this node. 0: they do not.
	ClientLimit, ClientInFlight, ClientTickets int
	// ClientHeader tells clients of Middleware and Handler apart; without it, or in a
	// request that lacks it, the address does.
	ClientHeader string
	// Page is what browsers are shown that have to wait for Middleware or Handler; nil:
	// nothing.
	Page *proxy.Page
	// HoldMax is the longest that a request of Middleware or Handler keeps its slot; 0: no
	// bound.
	HoldMax time.Duration
	// Tickets lets clients of Handler take tickets.
	Tickets bool
	// RateDown and RateUp are how many bytes per second a new pool's requests may move to
	// clients, and from clients, over all nodes. 0: no bound. One that the cluster knows
	// keeps its own: see [Node.SetRate]. It is for what Handler forwards: the program's
	// own handlers behind [Node.Middleware] are not slowed down.
	RateDown, RateUp int64
	// RequestRate is how many bytes per second one request moves at most, in either
	// direction. 0: no bound.
	RequestRate int64

	// AskInterval is the least time between two requests of this node for places in
	// line; 0: four times the number of nodes times the delay between them.
	AskInterval time.Duration

	// Upstreams and what follows are Handler's alone. Of several healthy upstreams the one
	// with the fewest requests in flight from this node is taken.
	Upstreams []*url.URL
	// Backup upstreams get what no other one can take: each of those is unhealthy, or
	// no connection to it could be made just then.
	Backup []*url.URL
	// HoldIdle is the longest that a request keeps its slot without a byte in either
	// direction; 0: no bound.
	HoldIdle time.Duration
	// MinUpload is how many bytes a second a request's body must come with; 0: no bound.
	MinUpload int
	// MinDownload is how many bytes a second a client must take of an answer; 0: no bound.
	MinDownload int
	// Fence sends the slot's fence to the upstream, in the header Kgate-Fence.
	Fence bool
	// Health says when an upstream is passed over, Transport how upstreams are reached.
	Health    proxy.Health
	Transport proxy.Transport
}

// errConfig is wrapped by what is wrong with a Config.
var errConfig = errors.New("kgate: bad configuration")

// reloaded returns c as a node that was started with before may follow it.
func (c Config) reloaded(before Config) (Config, error) {
	c.Name, c.Version, c.Witness, c.Peers, c.Process = before.Name, before.Version, before.Witness, before.Peers, before.Process
	return c.withDefaults()
}

// withDefaults fills in what c leaves open, also from this host, and says what is wrong.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("kgate: this host does not say its name: %w; set Config.Name", err)
		}
		c.Name = name
	}
	c.Version = cmp.Or(c.Version, version(), "unknown")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.Routes) == 0 && len(c.Pools) == 1 && c.Pools[0].servesRequests() {
		c.Routes = []proxy.Route{{Pool: c.Pools[0].Name}}
	}
	var errs []error
	if c.Witness && len(c.Pools) > 0 {
		errs = append(errs, fmt.Errorf("%w: a witness serves nothing: leave out Pools, or Witness", errConfig))
	}
	for _, p := range c.Pools {
		if !admission.IsPoolName(p.Name) {
			errs = append(errs, fmt.Errorf("%w: %q cannot name a pool: write 1 to 64 of a-z, 0-9, hyphen, underscore and dot", errConfig, p.Name))
		}
		if p.K < 1 {
			errs = append(errs, fmt.Errorf("%w: pool %q has K %d: set how many requests may be in flight at once", errConfig, p.Name, p.K))
		}
		if p.RateDown < 0 || p.RateUp < 0 || p.RequestRate < 0 {
			errs = append(errs, fmt.Errorf("%w: pool %q has a negative rate: set bytes per second, or 0", errConfig, p.Name))
		}
		if p.ReclaimHold && p.HoldMax <= 0 {
			errs = append(errs, fmt.Errorf("%w: pool %q has ReclaimHold without HoldMax: set both", errConfig, p.Name))
		}
	}
	var err error
	c.Peers, err = c.Peers.withDefaults(c.Name)
	return c, errors.Join(append(errs, err)...)
}

func (p Peers) withDefaults(name string) (Peers, error) {
	if p.Key != nil {
		if p.TLS != nil || p.GossipKeys != nil {
			return p, fmt.Errorf("%w: Peers.Key takes the place of TLS and GossipKeys: set either", errConfig)
		}
		var err error
		if p.TLS, p.GossipKeys, err = fromKey(p.Key, name); err != nil {
			return p, err
		}
		p.Key = nil
	}
	guarded := p.TLS != nil && p.GossipKeys != nil
	listen, gossip := hostaddr.DefaultPeer, hostaddr.DefaultGossip
	if !guarded && !p.Insecure && len(p.Join) == 0 && p.Expect <= 1 {
		listen, gossip = hostaddr.Alone, hostaddr.Alone
	}
	p.Listen, p.Gossip = cmp.Or(p.Listen, listen), cmp.Or(p.Gossip, gossip)
	p.Lease = cmp.Or(p.Lease, admission.DefaultLease)
	p.Replicas = max(0, cmp.Or(p.Replicas, admission.DefaultReplicas))
	if len(p.Join) == 0 {
		p.Expect = max(p.Expect, 1)
	}
	open := !hostaddr.BoundTo(p.Listen).IsLoopback() || !hostaddr.BoundTo(p.Gossip).IsLoopback()
	if open && !guarded && !p.Insecure {
		return p, fmt.Errorf("%w: other machines reach %s or %s, and nothing guards them: set Peers.Key, as `kgate keygen` makes it, or TLS and GossipKeys; Insecure in a network that you trust", errConfig, p.Listen, p.Gossip)
	}
	if p.Advertise.IsValid() {
		return p, nil
	}
	var err error
	if p.Advertise, err = hostaddr.Advertised(net.InterfaceAddrs, p.Listen, p.Gossip); err != nil {
		return p, fmt.Errorf("kgate: this host does not say its addresses: %w; set Peers.Advertise", err)
	}
	return p, nil
}

// fromKey returns what the node of a name makes of a cluster key.
func fromKey(key []byte, name string) (secure *tls.Config, gossip [][]byte, err error) {
	ring, err := clusterkey.Parse(key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: Peers.Key: %w; make one with `kgate keygen`", errConfig, err)
	}
	secure, err = ring.TLS(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: Peers.Key: %w", errConfig, err)
	}
	return secure, ring.Gossip(), nil
}

// node translates c, which has its defaults.
func (c Config) node() node.Config {
	out := node.Config{
		Name: c.Name, Version: c.Version, DataDir: c.DataDir, Witness: c.Witness, ServeWaiting: c.ServeWaiting,
		AdminTokens: c.AdminTokens, Logger: c.Logger,
		Peers: node.Peers{
			Links: node.Links{Listen: c.Peers.Listen, Advertise: c.Peers.Advertise.String(), TLS: c.Peers.TLS},
			Gossip: node.Gossip{
				Bind: c.Peers.Gossip, Advertise: c.Peers.Advertise.String(), Join: c.Peers.Join, Expect: c.Peers.Expect, Keys: c.Peers.GossipKeys,
			},
			Lease: c.Peers.Lease, Replicas: c.Peers.Replicas,
		},
		Proxy: proxy.Config{
			Routes: c.Routes, TCP: c.TCP, Edge: c.Edge, TrustedProxies: c.TrustedProxies, ClientAddr: c.ClientAddr, SampleRatio: c.SampleRatio,
			AccessLog: c.AccessLog, AccessWriter: c.AccessWriter,
		},
		Metrics: c.Process.Metrics, Gathered: c.Process.Gatherer, State: c.Process.State, Profiles: c.Process.Profiles,
	}
	if c.TracerProvider != nil {
		out.Proxy.Tracer = c.TracerProvider.Tracer("github.com/kgate/kgate", trace.WithSchemaURL(telemetry.TraceSchema))
	}
	for i := range c.Pools {
		out.Pools = append(out.Pools, c.Pools[i].node())
	}
	return out
}

// servesRequests reports whether the pool has an upstream for other than TCP connections.
func (p *Pool) servesRequests() bool {
	return slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u == nil || u.Scheme != "tcp" })
}

func (p *Pool) node() node.Pool {
	out := node.Pool{
		K: p.K, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease, Rate: node.Rate{Down: p.RateDown, Up: p.RateUp},
		Limits: node.Limits{
			QueueLimit: p.QueueLimit, ClientLimit: p.ClientLimit, ClientInFlight: p.ClientInFlight,
			ClientTickets: p.ClientTickets, Fair: p.Fair, AskInterval: p.AskInterval,
		},
		Pool: proxy.Pool{
			Name: p.Name, Upstreams: p.Upstreams, Backup: p.Backup, Health: p.Health, Transport: p.Transport, QueueTimeout: p.QueueTimeout,
			TellClients: p.ClientLimit > 0 || p.ClientInFlight > 0 || p.Fair, ClientHeader: p.ClientHeader,
			HoldMax: p.HoldMax, HoldIdle: p.HoldIdle, MinUpload: p.MinUpload, MinDownload: p.MinDownload, RequestRate: p.RequestRate, Fence: p.Fence, Tickets: p.Tickets, Page: p.Page,
		},
	}
	if p.EarlyBinding {
		out.Binding = admission.BindingEarly
	}
	if p.ReclaimHold {
		out.Reclaim = admission.ReclaimHold
	}
	return out
}
