package kgate

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// Config of a [Node]. The zero value, with a pool, is a node alone.
type Config struct {
	// Name of the node, unique in its cluster. Default: the host name.
	Name string
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
	// TrustedProxies are the reverse proxies in whose requests X-Forwarded-For names the client.
	// The proxy of package gateway passes on their X-Forwarded-* headers.
	TrustedProxies []netip.Prefix
	// ClientAddr returns the address of a request's client. Nil: TrustedProxies decides.
	ClientAddr func(*http.Request) netip.Addr
	// ServeWaiting makes Drain and Shutdown serve the requests that wait, in place of
	// refusing them.
	ServeWaiting bool
	// Logger gets the node's log; nil: nothing is logged.
	Logger *slog.Logger
}

// Peers says how this node and the others of its cluster reach each other.
type Peers struct {
	// Listen is the TCP address for other nodes, default ":7080". For a node alone without a
	// Key the default is a free port of 127.0.0.1.
	Listen string
	// Advertise is the address under which the others reach it. Default: the host of
	// Listen if that is one address, else this machine's first private address.
	Advertise netip.Addr
	// Join are addresses, host:port, of other nodes, as in their Listen; any one that answers is enough.
	// Without any, this node founds a cluster, alone or with Expect nodes.
	Join []string
	// Expect is how many nodes found a new cluster together; the same on each of them. 0:
	// the node founds a cluster alone or, if it has others to Join, never founds one.
	Expect int
	// Lease is how long a node may have requests in flight without hearing from the
	// cluster, and how long the slots of a lost one are withheld; default 3 s. The cluster
	// keeps the lease that it was founded with.
	Lease time.Duration
	// Key is the content of the cluster's key file, as `kgate keygen` makes it. It protects
	// all traffic between nodes. TLS can take its place.
	Key []byte
	// TLS has the certificate and the authorities for mutual TLS. The certificate must
	// have the node's Name.
	TLS *tls.Config
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
	// QueueTimeout is the longest wait of requests through Middleware and the proxy of package gateway, default
	// 60 s; negative: no limit. Acquire waits as long as its context lasts.
	QueueTimeout time.Duration
	// Fair gives each client that waits an equal share of the slots, in time, over all nodes; by
	// ClientWeights, if it is named there: how many shares a client has, by the value of
	// ClientHeader, the address, or the name that [Client] gives. They must be the same on all nodes.
	Fair          bool
	ClientWeights map[string]float64
	// ClientLimit is how many requests of one client may wait at this node, ClientInFlight
	// how many slots it may have, ClientTickets how many tickets. 0: no limit.
	ClientLimit, ClientInFlight, ClientTickets int
	// ClientHeader is the header that distinguishes clients of Middleware and the proxy of package gateway.
	// Without it, and for requests that lack it, the address does. A client can write any: let a
	// handler before Middleware set it.
	ClientHeader string
	// HoldMax is how long a request of Middleware, or of the proxy, may keep its slot; 0: no
	// limit.
	HoldMax time.Duration
	// TicketTTL is the longest time to live of a ticket of this node; default a minute. For
	// so long, and a lease, slots are missing after losses that no node knows the tickets of.
	TicketTTL time.Duration
}

// node translates c, which has its defaults.
func (c Config) node() node.Config {
	out := node.Config{
		Name: c.Name, Version: cmp.Or(version(), "unknown"), DataDir: c.DataDir, Witness: c.Witness, ServeWaiting: c.ServeWaiting, Logger: c.Logger,
		Peers: node.Peers{
			Links:  node.Links{Listen: c.Peers.Listen, Advertise: c.Peers.Advertise.String(), TLS: c.Peers.TLS},
			Gossip: node.Gossip{Join: c.Peers.Join, Expect: c.Peers.Expect},
			Lease:  c.Peers.Lease,
		},
		Proxy: proxy.Config{TrustedProxies: c.TrustedProxies, ClientAddr: c.ClientAddr},
	}
	for i := range c.Pools {
		out.Pools = append(out.Pools, c.Pools[i].node())
	}
	return out
}

func (p *Pool) node() node.Pool {
	out := node.Pool{
		K: p.K, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease,
		Limits: node.Limits{
			QueueLimit: p.QueueLimit, ClientLimit: p.ClientLimit, ClientInFlight: p.ClientInFlight,
			ClientTickets: p.ClientTickets, TicketTTL: p.TicketTTL, Fair: p.Fair,
		},
		Pool: proxy.Pool{
			Name: p.Name, QueueTimeout: p.QueueTimeout, HoldMax: p.HoldMax, TicketTTL: p.TicketTTL, ClientHeader: p.ClientHeader,
			TellClients: p.ClientLimit > 0 || p.ClientInFlight > 0 || p.Fair,
		},
	}
	for name, weight := range p.ClientWeights {
		if out.Limits.Weights == nil {
			out.Limits.Weights = make(map[string]float64)
		}
		out.Limits.Weights[out.ClientKey(name)] = weight
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
