package node

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/proxy"
)

// Node is one running gateway. Its methods are safe for concurrent use.
type Node struct {
	cfg    Config
	peers  *peers
	pools  *pools
	proxy  *proxy.Handler // for clients
	report *report
	admin  http.Handler

	refusals *refusalLog

	reload      sync.Mutex      // held during Reload
	leaving     atomic.Bool     // or draining: no longer ready
	drained     atomic.Bool     // no request waits or is in flight any more
	agreed      chan struct{}   // closed when the cluster has all our pools
	serving     context.Context // ends when clients that watch tickets must go elsewhere
	stopServing context.CancelCauseFunc
	leaveOnce   sync.Once

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
	undo   []func() error // what start has opened, in order
}

// Start starts a gateway. When Start returns, the gateway's handler refuses requests that it may not
// admit yet; Ready tells when the gateway takes part. The end of ctx breaks Start off, and means
// nothing afterwards. The caller ends the gateway with Drain, LeaveCluster and Close, or with Close
// alone. Nothing stays open if Start fails.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg.withDefaults(), failed: make(chan error, 4), agreed: make(chan struct{})}
	n.refusals = &refusalLog{log: n.cfg.Logger, counts: make(map[refusalKind]int)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.serving, n.stopServing = context.WithCancelCause(n.ctx)
	started := context.AfterFunc(ctx, n.cancel)
	err := n.start()
	if !started() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) start() error {
	for _, p := range n.cfg.Pools {
		n.cfg.Metrics.AddPool(p.Name)
	}
	for _, cause := range transport.Causes() {
		n.cfg.Metrics.AddRefusalCause(string(cause))
	}
	if why := journal.Exposed(n.cfg.DataDir, os.Geteuid()); why != "" {
		n.cfg.Logger.Warn("other users of this machine can replace what is in the data_dir", slog.String("cause", why))
	}
	n.peers = &peers{cfg: n.cfg}
	n.pools = newPools(n.cfg, n.peers, func(pool, upstream string) { n.proxy.Suspect(pool, upstream) })
	if err := n.startPeers(); err != nil {
		return err
	}
	var err error
	if n.proxy, err = proxy.New(n.proxyConfig(n.cfg)); err != nil {
		return err
	}
	n.undo = append(n.undo, func() error { n.proxy.Close(); return nil })
	n.report = &report{Node: n, started: time.Now()}
	n.pools.gateway.Start(n.peers.links, n.peers.cluster,
		admin.NewPeerHandler(admin.Config{Source: n.report, Lines: n.report, Tokens: n.cfg.AdminTokens, Log: n.cfg.Logger}))
	n.undo = append(n.undo, n.pools.gateway.Close)
	n.cfg.Metrics.SetSource(n.report)
	n.admin = admin.NewHandler(admin.Config{
		Source: n.report, Lines: n.report, Peers: n.pools.gateway, Metrics: n.cfg.Exposed, Tickets: n.pools.gateway, Client: n.proxy.ClientKey,
		Control: control{n}, Tokens: n.cfg.AdminTokens,
		Profiles: n.cfg.Profiles, Log: n.cfg.Logger,
	})
	n.wg.Go(func() { n.sample(n.ctx) })
	n.wg.Go(func() { n.followViews(n.ctx) })
	n.wg.Go(func() { n.pools.servers.follow(n.ctx, n.pools) })
	n.wg.Go(func() { n.refusals.run(n.ctx) })
	n.wg.Go(n.agree)
	return nil
}

func (n *Node) startPeers() error {
	boot := rand.Text() // names this incarnation
	if err := n.peers.startLinks(n.pools.gateway); err != nil {
		return err
	}
	n.undo = append(n.undo, n.peers.links.Close)
	if err := n.peers.startGossip(boot); err != nil {
		return err
	}
	n.undo = append(n.undo, n.peers.gossip.Close)
	if err := n.peers.startCluster(n.ctx, boot, n.pools.gateway); err != nil {
		return err
	}
	n.undo = append(n.undo, n.peers.cluster.Close)
	n.wg.Go(func() {
		select {
		case err := <-n.peers.cluster.Failed():
			n.failed <- err
		case <-n.ctx.Done():
		}
	})
	return nil
}

// agree has the cluster agree on the configured pools, and logs when the gateway is ready for the
// first time.
func (n *Node) agree() {
	if err := n.pools.define(n.ctx, n.cfg.Pools); err != nil {
		n.failed <- err
		return
	}
	if n.ctx.Err() != nil {
		return
	}
	close(n.agreed)
	if missing := n.AwaitReady(n.ctx); missing != "" {
		return
	}
	self, _ := n.peers.cluster.Self()
	n.cfg.Logger.Info("ready", slog.Uint64("node", uint64(self)), slog.Int("gateways", len(n.peers.cluster.View().Members)))
}

// Ready reports whether the gateway admits requests to all its pools, and if not, why, in
// plain words. A witness is ready when it is a member.
func (n *Node) Ready() (ready bool, reason string) {
	if n.leaving.Load() {
		return false, "draining: this gateway is being taken out"
	}
	if reason := n.peers.notReady(); reason != "" {
		return false, reason
	}
	select {
	case <-n.agreed:
	default:
		return false, "the cluster has not agreed on the pools yet"
	}
	if pool := n.pools.forming(); pool != "" && !n.cfg.Witness {
		return false, "pool " + pool + " is forming its line"
	}
	return true, ""
}

// AwaitReady waits until the gateway is ready and returns "", or until ctx ends and returns why it is
// not.
func (n *Node) AwaitReady(ctx context.Context) (missing string) {
	agreed := n.agreed
	for {
		begun, changed := n.pools.gateway.Begun(), n.peers.cluster.Changed()
		ready, _ := n.Ready()
		if ready {
			return ""
		}
		select {
		case <-begun:
		case <-changed:
		case <-agreed:
			agreed = nil
		case <-ctx.Done():
			_, missing = n.Ready() // the reason may be more exact by now
			return missing
		}
	}
}

// Failed delivers the error because of which the gateway cannot go on.
func (n *Node) Failed() <-chan error { return n.failed }

// Handler returns the handler for clients.
func (n *Node) Handler() *proxy.Handler { return n.proxy }

// Admin returns the handler for operators: the status page, the API and the metrics.
func (n *Node) Admin() http.Handler { return n.admin }

// PeerAddr returns the address at which the gateway listens for other gateways, which can join there.
func (n *Node) PeerAddr() net.Addr { return n.peers.links.Addr() }

// Status returns the state of the named pool at this gateway.
func (n *Node) Status(pool string) gateway.PoolStatus { return n.pools.gateway.Status(pool) }

// lookEvery is the interval of sample.
const lookEvery = time.Second

// sample polls every second, until ctx ends, for changes that have no event: of the leader, the disk,
// the upstreams, the oldest waiting requests and the slots held too long.
func (n *Node) sample(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	leader := ""
	diskFull := false
	upstreams := upstreamLog{n.cfg.Logger, make(map[string]map[string]upstreamWas)}
	held := forgotten{n.cfg.Logger, make(map[string]map[string]bool)}
	tickets := hoards{n.cfg.Logger, make(map[string]time.Time), make(map[string]bool)}
	for {
		n.report.awake.since(time.Now())
		n.report.logDisk(&diskFull)
		for _, p := range n.pools.gateway.Pools() {
			upstreams.look(p.Name, n.report.upstreams(&p), time.Now())
			held.look(n.pools.gateway, p.Name, n.pools.holdMax(p.Name))
			tickets.look(&p, time.Now())
			if p.Waiting > 0 {
				n.cfg.Metrics.Pool(p.Name).Waiting(n.pools.gateway.Oldest(p.Name))
			}
		}
		if now, known := n.peers.cluster.Leader(); known && now != leader {
			if leader != "" {
				n.cfg.Metrics.LeaderChanged()
				n.peers.history.add("", now+" leads, after "+leader)
			}
			if now != n.cfg.Name { // the leader itself logs that it leads
				n.cfg.Logger.Info("leader changed", slog.String("old", leader), slog.String("new", now))
			}
			leader = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
