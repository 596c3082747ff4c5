package node

import (
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
	// Name is this gateway's name, unique in the cluster. Version is the program's.
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
	// AdminTokens returns the tokens that allow changes. With the first, this gateway proves to
	// others that it may ask for a change. It is called for each change. Nil: there are none.
	AdminTokens func() []string
	// Metrics counts; nil: only for the status. Exposed serves the metrics on the admin handler;
	// nil: it has none.
	Metrics *telemetry.Metrics
	Exposed http.Handler
	// Profiles of the process for the admin handler; nil: none.
	Profiles http.Handler
	// Reload reads the configuration file again and returns the changes, each in a line; nil:
	// there is no file. Troubles returns the faults of the process's files, each a sentence; nil:
	// there are none.
	Reload   func(context.Context) ([]string, error)
	Troubles func() []string
	// OnLeave is called once, when an operator asks this gateway to leave. It must not block.
	OnLeave func()
	// State adds the program's part of the state that metrics mirror; nil: there is none.
	State func(*telemetry.State)
	// Logger must not be nil.
	Logger *slog.Logger
}

// Peers is how this gateway and the others reach each other. It holds the configuration of each part;
// the node fills in the fields that are not named here.
type Peers struct {
	// Links have Listen, Advertise and TLS.
	Links Links
	// Gossip has Join and Expect.
	Gossip Gossip
	// Lease is how long a gateway may admit without news of the others.
	Lease time.Duration
}

// Links is the configuration of the links.
type Links = transport.Config

// Gossip is the configuration of gossip.
type Gossip = serfring.Config

// Pool is a pool of a Node. Pools of the same name at all gateways share k slots.
type Pool struct {
	proxy.Pool
	// K, Binding, Reclaim and Rate are the values of a new pool; a pool that the cluster knows
	// keeps the agreed values.
	K       int
	Binding admission.Binding
	Reclaim admission.Reclaim
	Rate    Rate
	// Limits apply to this gateway only.
	Limits Limits
}

// Rate of a pool over all gateways, in bytes per second; 0: no bound.
type Rate = membership.Rate

// Limits of a pool at one gateway.
type Limits = gateway.PoolConfig

func (c Config) withDefaults() Config {
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
