package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/journal"
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

// Links tells how this gateway's links to the other members are.
type Links interface {
	// Down returns the members to which there should be a link but none is up,
	// and since when.
	Down() map[kmutex.Node]time.Time
	// LinksChanged receives a value when what Down returns may differ; it has no
	// other reader.
	LinksChanged() <-chan struct{}
}

// StreamLayer carries connections of one kind between gateways. Its Addr
// need not be reachable; peers are dialed at their PeerAddr.
type StreamLayer interface {
	net.Listener
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Config says who this gateway is and how it takes part.
type Config struct {
	// Name of the gateway, unique among the gateways.
	Name string
	// Boot is a random string, new for each start of the process, and the same
	// that Discovery shows to others. Later incarnations of this start have
	// boots that are made of it.
	Boot string
	// PeerAddr is where other gateways reach this one (host:port); both stream
	// layers of a gateway are reached there, or at what the dialing side's
	// layer makes of it.
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
	// Links to the other members; nil: none are known, and no gateway is
	// suspected for what happens to them.
	Links Links
	// Missing returns the members whose reports this gateway misses as the home of a
	// pool, with links and leases or without, and since when it has waited for them.
	// It is called with every renewal, by one goroutine at a time, and must not
	// block. The leader suspends a member that stays missing, or this gateway if it
	// misses most members. Nil: nobody is ever missed.
	Missing func() map[kmutex.Node]time.Time
	// AdminTokens returns the tokens, any of which another gateway must show
	// that passes on a change of k or a suspension; the first is shown to
	// others. Nil or none: no token is needed.
	AdminTokens func() []string
	// Raft and Control are closed by Close.
	Raft, Control StreamLayer

	// HeartbeatTimeout and ElectionTimeout are raft's. Default: a third of Lease, at
	// most 1 s.
	HeartbeatTimeout, ElectionTimeout time.Duration
	// LeaderLease is how long a leader stays one without hearing from a
	// majority; at most HeartbeatTimeout, which is the default.
	LeaderLease time.Duration
	// CommitTimeout is how long an idle leader waits before it tells the others again
	// what is committed. Each commit is told at once; this is for what was lost on the
	// way. Default: a third of Lease.
	CommitTimeout time.Duration
	// CallTimeout bounds one call to another gateway. Default: half of Lease, at least
	// 1 s and at most 5 s.
	CallTimeout time.Duration
	// Interval is how often the state is looked at without being told of a
	// change. Default 1 s.
	Interval time.Duration
	// SwapAfter is how long a voter must be suspected before a non-voter takes
	// over its vote. Default 3 s.
	SwapAfter time.Duration
	// CleanAfter is how long the raft server of a lost gateway is kept for its
	// return. Default 1 min.
	CleanAfter time.Duration
	// Lease is how long a gateway may have requests in flight without the
	// leader having heard of it. It is what a new cluster starts with; afterwards
	// the agreed one rules. At least 3 heartbeat timeouts, or every change of the
	// leader would cost everybody's lease. Default 3 s.
	Lease time.Duration

	// Stored is told how long each write of raft's log took, Committed how long this
	// gateway, as the leader, waited for a change to be agreed on. They must not block;
	// nil: nobody is told.
	Stored, Committed func(took time.Duration)
	// Logger receives what happens; nil discards it.
	Logger *slog.Logger

	files journal.FS // where DataDir lies; nil: in the file system
}

// Errors of [Start] and of the cluster's methods.
var (
	// errConfig is wrapped by every error of [Config.Validate].
	errConfig = errors.New("membership: bad configuration")
	// errDataDir means that the data directory cannot be used.
	errDataDir = errors.New("membership: data_dir cannot be used")
	// errClosed means that the cluster was closed meanwhile.
	errClosed = errors.New("membership: closed")
	// errNoLeader means that no leader could be reached in time.
	errNoLeader = errors.New("membership: no leader")
)

func (c Config) withDefaults() Config {
	setDefault := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	setDefault(&c.Lease, 3*time.Second)
	setDefault(&c.HeartbeatTimeout, raftTimeout(c.Lease))
	setDefault(&c.ElectionTimeout, c.HeartbeatTimeout)
	setDefault(&c.LeaderLease, c.HeartbeatTimeout)
	setDefault(&c.CommitTimeout, c.Lease/3)
	setDefault(&c.CallTimeout, callTimeout(c.Lease))
	setDefault(&c.Interval, time.Second)
	setDefault(&c.SwapAfter, 3*time.Second)
	setDefault(&c.CleanAfter, time.Minute)
	c.BootstrapExpect = max(c.BootstrapExpect, 1)
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
	if c.Name == "" || len(c.Name) > 128 || strings.ContainsFunc(c.Name, unicode.IsControl) {
		bad("name %q: 1 to 128 bytes without control characters are allowed", c.Name)
	}
	if c.Boot == "" || len(c.Boot) > 64 || strings.ContainsAny(c.Boot, "/ \n") {
		bad("boot id %q: 1 to 64 bytes without slash and space are allowed", c.Boot)
	}
	if _, _, err := net.SplitHostPort(c.PeerAddr); err != nil || len(c.PeerAddr) > maxText {
		bad("peer address %q is not host:port", c.PeerAddr)
	}
	if c.Discovery == nil || c.Raft == nil || c.Control == nil {
		bad("discovery and both stream layers are needed")
	}
	if c.HeartbeatTimeout < 5*time.Millisecond || c.ElectionTimeout < c.HeartbeatTimeout {
		bad("election timeout %v, heartbeat timeout %v: the first must be at least the second, and that 5ms",
			c.ElectionTimeout, c.HeartbeatTimeout)
	}
	if c.LeaderLease < 5*time.Millisecond || c.LeaderLease > c.HeartbeatTimeout {
		bad("leader lease %v must be between 5ms and the heartbeat timeout %v", c.LeaderLease, c.HeartbeatTimeout)
	}
	if c.Lease < 3*c.HeartbeatTimeout || c.Lease > maxLease {
		bad("lease %v must be between 3 heartbeat timeouts (%v) and %v", c.Lease, 3*c.HeartbeatTimeout, maxLease)
	}
	return errors.Join(errs...)
}
