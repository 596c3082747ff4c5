package node

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// MaxK is the largest k of a pool.
const MaxK = kmutex.MaxK

// Config of a Node.
type Config struct {
	// Name of this gateway, unique in the cluster. Version of the program.
	Name, Version string
	// DataDir keeps the agreed views and tickets over a restart; empty: in memory
	// only.
	DataDir string
	// Witness: the node votes in the cluster and serves nothing. It has no Pools.
	Witness bool
	// ServeWaiting makes Drain serve the requests that wait, instead of refusing
	// them.
	ServeWaiting bool
	Peers        Peers
	Pools        []Pool
	// Proxy is the configuration of the data plane. The node fills in its pools and
	// whatever connects it to the rest of the node.
	Proxy proxy.Config
	// AdminTokens returns the tokens that allow changes, the first of which this
	// gateway proves to others that it has. It is called for each change. Nil: there are none.
	AdminTokens func() []string
	// Metrics count; nil: for the status alone. Exposed is how the admin handler shows them; nil:
	// it does not.
	Metrics *telemetry.Metrics
	Exposed http.Handler
	// Profiles of the process for the admin handler; nil: none.
	Profiles http.Handler
	// Reload reads the configuration file again and returns what has changed, each in a line;
	// nil: there is none. Troubles are what is wrong with the process's files, each a sentence;
	// nil: nothing is.
	Reload   func(context.Context) ([]string, error)
	Troubles func() []string
	// State adds to what the metrics mirror; nil: nothing is added.
	State func(*telemetry.State)
	// Logger; nil: silent.
	Logger *slog.Logger
}

// Peers says how this gateway and the others reach each other: with the configuration of each
// part, without what the node fills in itself.
type Peers struct {
	// Links have Listen, Advertise and TLS.
	Links Links
	// Gossip has Join and Expect.
	Gossip Gossip
	// Lease is how long a gateway may admit without news of the others.
	Lease time.Duration
	// Replicas is how many other gateways keep copies of this one's tickets.
	Replicas int
}

// Links is the configuration of the links.
type Links = transport.Config

// Gossip is the configuration of gossip.
type Gossip = serfring.Config

// Pool of a Node. Those that share a name over all gateways share k slots.
type Pool struct {
	proxy.Pool
	// K, Binding, Reclaim and Rate are what a new pool starts with; a pool that the cluster
	// knows keeps what was agreed on.
	K       int
	Binding admission.Binding
	Reclaim admission.Reclaim
	Rate    Rate
	// Limits are this gateway's own.
	Limits Limits
}

// Rate of a pool over all gateways, in bytes per second; 0: no bound.
type Rate = membership.Rate

// Limits of a pool at one gateway.
type Limits = gateway.PoolConfig

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.AdminTokens == nil {
		c.AdminTokens = func() []string { return nil }
	}
	if c.Troubles == nil {
		c.Troubles = func() []string { return nil }
	}
	if c.Metrics == nil {
		c.Metrics = telemetry.New(nil, telemetry.Config{})
	}
	if c.State == nil {
		c.State = func(*telemetry.State) {}
	}
	return c
}

// capacities are the k of each pool's configuration.
func (c Config) capacities() map[string]int {
	out := make(map[string]int, len(c.Pools))
	for _, p := range c.Pools {
		out[p.Name] = p.K
	}
	return out
}

// limits of the pools, by name.
func (c Config) limits() map[string]Limits {
	out := make(map[string]Limits, len(c.Pools))
	for _, p := range c.Pools {
		out[p.Name] = p.Limits
	}
	return out
}
