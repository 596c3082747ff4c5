package config

import (
	"net/netip"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/hostaddr"
)

// Default returns the configuration of a gateway without a file. It lacks pools, routes,
// and what [Config.Resolve] asks the host for.
func Default() *Config {
	return &Config{
		Node: Node{Role: RoleGateway},
		Listen: Listen{
			HTTP:  ":8080",
			Admin: "127.0.0.1:9080",
			Peer:  hostaddr.DefaultPeer,

			HeaderTimeout:      10 * time.Second,
			IdleTimeout:        2 * time.Minute,
			MaxHeaderBytes:     16 << 10,
			WaitingHeaderBytes: 32 << 20,
		},
		Cluster:   Cluster{Lease: admission.DefaultLease},
		Drain:     Draining{Timeout: AutoDuration{Auto: true}, Waiting: WaitingRefuse},
		Log:       Log{Level: "info", Format: "json", Access: true},
		Telemetry: Telemetry{SampleRatio: 0.01},
		src:       newSource("", nil),
	}
}

// Bootstrap returns how many gateways found the cluster together: 1 for a
// gateway that founds one alone, n when it waits for n gateways, and 0 when it
// only ever joins a cluster that exists. With addresses to join and
// bootstrap_expect absent or 1 it only joins: a gateway that restarts while
// its cluster is out of reach must not found a second one.
func (c *Config) Bootstrap() int {
	switch expect := c.Cluster.BootstrapExpect; {
	case expect > 1:
		return expect
	case len(c.Cluster.Join) > 0:
		return 0
	default:
		return 1
	}
}

// DrainTimeout returns how long requests in flight may take to finish once the gateway
// stops. It is as long as the pools let a request take, unless drain.timeout says otherwise.
func (c *Config) DrainTimeout() time.Duration {
	const least, most = 30 * time.Second, 30 * time.Minute // routes need no pool
	if !c.Drain.Timeout.Auto {
		return c.Drain.Timeout.Duration
	}
	longest := least
	for _, p := range c.Pools {
		if p.Hold.Max == 0 {
			return most
		}
		longest = max(longest, p.Hold.Max)
	}
	return min(longest, most)
}

// alone reports whether no other gateway is expected, and nothing configures who may take
// part.
func (c *Config) alone() bool {
	return c.Bootstrap() == 1 && !c.Cluster.guarded() && !c.Cluster.Insecure
}

// ForPeers returns where to listen for other gateways, and the address at which
// they reach this one: the configured ones. A gateway that is alone and has no cluster key
// listens on a free port of 127.0.0.1 in place of the default, so that no other machine
// reaches it.
func (c *Config) ForPeers() (listen string, advertise netip.Addr) {
	if c.alone() && c.Listen.Peer == hostaddr.DefaultPeer {
		return hostaddr.Alone, hostaddr.BoundTo(hostaddr.Alone)
	}
	return c.Listen.Peer, c.Node.Advertise
}

// pool returns the pool of that name, and whether there is one.
func (c *Config) pool(name string) (Pool, bool) {
	for _, p := range c.Pools {
		if p.Name == name {
			return p, true
		}
	}
	return Pool{}, false
}

// DefaultPool returns the defaults of a pool. Name and K have none.
func DefaultPool() Pool {
	return Pool{
		Binding: admission.BindingLate,
		Queue:   Queue{Timeout: admission.DefaultQueueTimeout, Limit: admission.DefaultQueueLimit, Order: OrderFIFO, PerClient: PerClient{Tickets: 20}, Page: Page{Keep: time.Minute}},
		Hold:    Hold{Max: 30 * time.Minute, Idle: 90 * time.Second},
		Health: Health{
			Interval: admission.DefaultHealthInterval, Timeout: admission.DefaultHealthTimeout,
			UnhealthyAfter: admission.DefaultUnhealthyAfter,
		},
		Reclaim:   admission.ReclaimLease,
		Fence:     true,
		TicketTTL: admission.DefaultTicketTTL,
		Transport: Transport{
			DialTimeout:           admission.DefaultDialTimeout,
			ResponseHeaderTimeout: admission.DefaultResponseHeaderTimeout,
			IdleTimeout:           admission.DefaultIdleTimeout,
			Resolve:               admission.DefaultResolve,
			ProxyProtocol:         ProxyNone,
		},
	}
}
