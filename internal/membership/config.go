package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Discovery reports which gateways gossip knows. Changed receives a value
// when Members may differ; it has no other reader. SetBoot changes what others
// are told of this one.
type Discovery interface {
	Members() []serfring.Member
	Changed() <-chan struct{}
	SetBoot(boot string) error
}

var _ Discovery = (*serfring.Agent)(nil)

// Links are the connections to other gateways.
type Links interface {
	// SendDatagram sends a datagram, which may be lost. It never blocks.
	SendDatagram(to transport.To, ch wire.Channel, data []byte) error
	// Reach makes one attempt to connect to another gateway, unless there is a connection. A host
	// that has not answered at all after first is given up.
	Reach(ctx context.Context, to transport.To, first time.Duration) error
	// Meet asks who is at an address, over a connection of its own.
	Meet(ctx context.Context, addr string) (transport.To, error)
	// Keep keeps a connection, until the function that it returns is called.
	Keep(to transport.To) (release func())
	// Proved returns where a gateway is, as it has said itself on the connection that is open.
	Proved(name string) (addr string, ok bool)
}

var _ Links = (*transport.Transport)(nil)

// Config says who this gateway is and how it takes part.
type Config struct {
	// Name of the gateway, unique among the gateways.
	Name string
	// Boot is a random string, new for each start of the process, and the same
	// that Discovery shows to others. Later incarnations of this start have
	// boots that are made of it.
	Boot string
	// PeerAddr is where other gateways reach this one (host:port).
	PeerAddr string
	// DataDir keeps the state over restarts; empty: in memory.
	DataDir string
	// BootstrapExpect is the number of gateways that start a new cluster
	// together. 1 or less: alone, unless Joining.
	BootstrapExpect int
	// Witness gateways vote and serve nothing.
	Witness bool
	// Joining means that there is a join list. With BootstrapExpect at most 1
	// this gateway then never starts a cluster.
	Joining bool

	Discovery Discovery
	Links     Links
	// Carrier takes what comes over Links.
	Carrier *Carrier
	// Missing returns the members whose reports this gateway misses as the home of a
	// pool, with links and leases or without, and since when it has waited for them.
	// It is called with every renewal, by one goroutine at a time, and must not
	// block. The leader suspends a member that stays missing, or this gateway if it
	// misses most members. Nil: nobody is ever missed.
	Missing func() map[kmutex.Node]time.Time
	// AdminTokens returns the tokens. Another gateway that passes on a change of k
	// or a suspension must prove that it has one of them; the first is what this
	// one proves. Nil or none: no token is needed.
	AdminTokens func() []string
	// Lease is how long a gateway may have requests in flight without the
	// leader having heard of it. It is what a new cluster starts with; afterwards
	// the agreed one rules. Default 3 s.
	Lease time.Duration

	// Stored is told how long each write of the log took, Committed how long this
	// gateway, as the leader, waited for a change to be agreed on. They must not block;
	// nil: nobody is told.
	Stored, Committed func(took time.Duration)
	// Logger receives what happens; nil discards it.
	Logger *slog.Logger

	files     journal.FS    // where DataDir lies; nil: in the file system
	swapAfter time.Duration // see core.Config
}

// Errors of [Start] and of the cluster's methods.
var (
	// errConfig is wrapped by every error of [Config.Validate].
	errConfig = errors.New("bad configuration")
	// errDataDir means that the data directory cannot be used.
	errDataDir = errors.New("the data directory cannot be used")
	// errClosed means that the cluster was closed meanwhile.
	errClosed = errors.New("closed")
)

func (c Config) withDefaults() Config {
	if c.Lease <= 0 {
		c.Lease = 3 * time.Second
	}
	c.BootstrapExpect = max(c.BootstrapExpect, 1)
	if c.Missing == nil {
		c.Missing = func() map[kmutex.Node]time.Time { return nil }
	}
	if c.AdminTokens == nil {
		c.AdminTokens = func() []string { return nil }
	}
	if c.Stored == nil {
		c.Stored = func(time.Duration) {}
	}
	if c.Committed == nil {
		c.Committed = func(time.Duration) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with c. It touches nothing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
	}
	if !admission.IsNodeName(c.Name) {
		bad("%q cannot name a gateway", c.Name)
	}
	if c.Boot == "" || len(c.Boot) > 64 || strings.ContainsAny(c.Boot, "/ \n") {
		bad("boot id %q: 1 to 64 bytes without slash and space are allowed", c.Boot)
	}
	if _, _, err := net.SplitHostPort(c.PeerAddr); err != nil || len(c.PeerAddr) > views.MaxText {
		bad("peer address %q is not host:port", c.PeerAddr)
	}
	if c.Discovery == nil || c.Links == nil || c.Carrier == nil {
		bad("discovery, links and their carrier are needed")
	}
	if c.Lease < admission.MinLease || c.Lease > admission.MaxLease {
		bad("lease %v must be between %v and %v", c.Lease, admission.MinLease, admission.MaxLease)
	}
	return errors.Join(errs...)
}
