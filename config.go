package kgate

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
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
	// DataDir is where the node stores what the cluster has agreed on, and tickets, so that
	// they survive a restart. Empty: it keeps them in memory only.
	DataDir string
	// Peers says how this node and the others reach each other.
	Peers Peers
	// Pools that this node serves. The nodes of a cluster that give a pool the same name
	// share its k slots.
	Pools []Pool
	// Witness makes this a node that votes in its cluster and serves nothing: it has no
	// pools. With a witness, two nodes survive the loss of any one of the three.
	Witness bool
	// Routes of Handler, in order: the first that matches takes the request. None: all
	// requests go to the only pool, if that has upstreams.
	Routes []proxy.Route
	// TCP says which pool serves the connections of a listener of [downstream.Server.ServeTCP].
	TCP []proxy.TCP
	// Edge says how Handler treats its clients.
	Edge proxy.Edge
	// TrustedProxies are the reverse proxies whose X-Forwarded-* headers Handler trusts and
	// passes on. In their requests X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix
	// ClientAddr returns the address of a request's client. Nil: TrustedProxies decides.
	ClientAddr func(*http.Request) netip.Addr
	// ServeWaiting makes Drain and Shutdown serve the requests that wait, in place of
	// refusing them.
	ServeWaiting bool
	// AdminTokens returns the tokens that changes over Admin require. They are the same on
	// every node: the first proves changes to other nodes, all are accepted. They must be
	// too long to guess. Nil: changes require none, and must come from this machine.
	AdminTokens func() []string
	// TracerProvider makes the spans of waits, and of Handler's requests; nil: no spans.
	TracerProvider trace.TracerProvider
	// SampleRatio is the share of Handler's requests to sample, from 0 to 1. A request that
	// brings a trace context is sampled if that says so.
	SampleRatio float64
	// AccessLog is the format of a line for each of Handler's requests; by default there is
	// none. AccessWriter takes the lines, except those of proxy.AccessStructured, which go
	// to Logger.
	AccessLog    proxy.AccessFormat
	AccessWriter io.Writer
	// Logger gets the node's log; nil: nothing is logged.
	Logger *slog.Logger
	// Process is for a program that is only a node, such as `kgate serve`.
	Process Process
}

// Process connects a node to a program that is only a node. Where the node is a part of a
// program, the zero value is right.
type Process struct {
	// Metrics are used in place of the node's own; then the node as a collector has none.
	Metrics *telemetry.Metrics
	// Gatherer is what Admin serves as /metrics. Nil: the node's metrics, Go's and those of
	// the process.
	Gatherer prometheus.Gatherer
	// State adds to the state that Metrics report.
	State func(*telemetry.State)
	// Reload is called when an operator asks for the configuration file to be read again. It
	// returns what has changed, each in a line. Nil: there is no file.
	Reload func(context.Context) ([]string, error)
	// Troubles returns what is wrong with the program's files, each in a sentence, for
	// operators. Nil: nothing is.
	Troubles func() []string
	// Profiles serves Admin's /debug/pprof/, to this machine only. Nil: none.
	Profiles http.Handler
	// OnLeave is called when an operator asks the node to leave, and must not block. Nil:
	// the node shuts down.
	OnLeave func()
}

// Peers says how this node and the others of its cluster reach each other.
type Peers struct {
	// Listen is the TCP address for other nodes, default ":7080". Gossip is the UDP and TCP
	// address for finding them, default ":7946". For a node alone without a Key the
	// defaults are free ports of 127.0.0.1.
	Listen, Gossip string
	// Advertise is the address under which the others reach both. Default: the host of
	// Listen if that is one address, else this machine's first private address.
	Advertise netip.Addr
	// Join are gossip addresses, host:port, of other nodes; any one that answers is enough.
	// Without any, this node founds a cluster, alone or with Expect nodes.
	Join []string
	// Expect is how many nodes found a new cluster together; the same on each of them. 0:
	// the node founds a cluster alone or, if it has others to Join, never founds one.
	Expect int
	// Lease is how long a node may have requests in flight without hearing from the
	// cluster, and how long the slots of a lost one are withheld; default 3 s. The cluster
	// keeps the lease that it was founded with.
	Lease time.Duration
	// Replicas is how many other nodes keep copies of this node's tickets; default 2,
	// at least 1.
	Replicas int
	// Key is the content of the cluster's key file, as `kgate keygen` makes it. It protects
	// all traffic between nodes. TLS and GossipKeys can take its place.
	Key []byte
	// TLS has the certificate and the authorities for mutual TLS. The certificate must
	// have the node's Name.
	TLS *tls.Config
	// GossipKeys have 32 bytes each: the first encrypts, all decrypt.
	GossipKeys [][]byte
	// Insecure lets nodes exchange unprotected traffic on addresses that other machines can
	// reach. Anybody who can reach them can then act as a node.
	Insecure bool
}

// Pool of slots that the nodes share.
type Pool struct {
	// Name of the pool: 1 to 64 of a-z, 0-9, - _ and the dot.
	Name string
	// K is how many slots a new pool has, over all nodes. A pool that the cluster knows
	// keeps its k: see [Node.SetK].
	K int
	// EarlyBinding binds a request to a slot when it arrives, as the published algorithm
	// does, and not when a slot is free.
	EarlyBinding bool
	// ReclaimHold withholds the slots of a lost node for HoldMax, not only for its lease.
	// It is for upstreams that go on with a request whose client is gone.
	ReclaimHold bool

	// QueueLimit is how many requests may wait at this node; default 10000.
	QueueLimit int
	// QueueTimeout is the longest wait of requests through Middleware and Handler, default
	// 60 s; negative: no limit. Acquire waits as long as its context lasts.
	QueueTimeout time.Duration
	// Fair serves the clients of this node in turn, one request each. The nodes do not know
	// each other's clients: a client that asks at three nodes has three turns.
	Fair bool
	// ClientLimit is how many requests of one client may wait at this node, ClientInFlight
	// how many slots it may have, ClientTickets how many tickets. 0: no limit.
	ClientLimit, ClientInFlight, ClientTickets int
	// ClientHeader is the header that distinguishes clients of Middleware and Handler.
	// Without it, and for requests that lack it, the address does.
	ClientHeader string
	// Page is shown to browsers that wait for Middleware or Handler; nil: none.
	Page *proxy.Page
	// HoldMax is how long a request of Middleware or Handler may keep its slot; 0: no
	// limit.
	HoldMax time.Duration
	// Tickets lets clients of Handler take tickets.
	Tickets bool
	// TicketTTL is the longest time to live of a ticket of this node; default a minute. For
	// so long, and a lease, slots are missing after losses that no node knows the tickets of.
	TicketTTL time.Duration
	// RateDown and RateUp are how many bytes per second a new pool's requests may move to
	// clients, and from clients, over all nodes. 0: no limit. A pool that the cluster knows
	// keeps its rates: see [Node.SetRate]. They apply to what Handler forwards, not to the
	// program's own handlers behind [Node.Middleware].
	RateDown, RateUp int64
	// RequestRate is how many bytes per second one request may move in either direction. 0:
	// no limit.
	RequestRate int64

	// AskInterval is the least time between two asks of this node for places in line; 0:
	// four times the number of nodes times the one-way delay between them.
	AskInterval time.Duration

	// Upstreams and the fields below are for Handler only. Of several healthy upstreams the
	// one with the fewest requests in flight from this node is next.
	Upstreams []*url.URL
	// Backup are upstreams that are used only while no other upstream can take the request: each is
	// unhealthy, or a connection to it fails at that moment.
	Backup []*url.URL
	// HoldIdle is how long a request may keep its slot without a byte in either direction;
	// 0: no limit.
	HoldIdle time.Duration
	// MinUpload is how many bytes per second of a request's body a client must send; 0: no
	// limit.
	MinUpload int
	// MinDownload is how many bytes per second of an answer a client must read; 0: no
	// limit.
	MinDownload int
	// Fence sends the slot's fence to the upstream, in the header Kgate-Fence.
	Fence bool
	// Health says when an upstream is unhealthy, Transport how upstreams are reached.
	Health    proxy.Health
	Transport proxy.Transport
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
		Reload: c.Process.Reload, Troubles: c.Process.Troubles,
	}
	if c.TracerProvider != nil {
		out.Proxy.Tracer = c.TracerProvider.Tracer("github.com/kgate/kgate", trace.WithSchemaURL(telemetry.TraceSchema))
	}
	for i := range c.Pools {
		out.Pools = append(out.Pools, c.Pools[i].node())
	}
	return out
}

func (p *Pool) node() node.Pool {
	out := node.Pool{
		K: p.K, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease, Rate: node.Rate{Down: p.RateDown, Up: p.RateUp},
		Limits: node.Limits{
			QueueLimit: p.QueueLimit, ClientLimit: p.ClientLimit, ClientInFlight: p.ClientInFlight,
			ClientTickets: p.ClientTickets, TicketTTL: p.TicketTTL, Fair: p.Fair, AskInterval: p.AskInterval,
		},
		Pool: proxy.Pool{
			Name: p.Name, Upstreams: p.Upstreams, Backup: p.Backup, Health: p.Health, Transport: p.Transport, QueueTimeout: p.QueueTimeout,
			TellClients: p.ClientLimit > 0 || p.ClientInFlight > 0 || p.Fair, ClientHeader: p.ClientHeader,
			HoldMax: p.HoldMax, HoldIdle: p.HoldIdle, MinUpload: p.MinUpload, MinDownload: p.MinDownload, RequestRate: p.RequestRate, Fence: p.Fence, Tickets: p.Tickets, TicketTTL: p.TicketTTL, Page: p.Page,
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

// version returns the version of the module kgate in this program.
func version() string {
	const path = "github.com/kgate/kgate"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path && m.Replace == nil && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
}
