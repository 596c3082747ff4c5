package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// node is one gateway with everything that belongs to it.
type node struct {
	cfg     *config.Config
	log     *slog.Logger
	started time.Time

	metrics *telemetry.Metrics
	tracer  trace.Tracer // nil: no traces
	mail    mailbox
	links   *transport.Transport
	gossip  *serfring.Agent
	cluster *membership.Cluster
	gateway *gateway.Gateway
	handler *proxy.Handler
	clients *proxy.Server
	admin   *http.Server

	upstreams   upstreamTrust             // as the handler has it
	certificate *proxy.Certificate        // of listen.https; nil: none
	trust       *trust                    // once it runs watchTrust's own
	peerExpiry  atomic.Pointer[time.Time] // of trust
	read        atomic.Pointer[configRead]
	refusals    *refusalLog
	// accessLog takes lines in JSON, commonLog those of web servers.
	accessLog, commonLog *telemetry.Buffered
	tokens               atomic.Pointer[[]string]
	once                 oncelog.Limit

	sockets               map[string][]net.Listener // that systemd has opened, until they are used
	clientAddr, adminAddr net.Addr
	leaving               atomic.Bool     // or draining: no longer ready
	serving               context.Context // ends when clients are to be done
	stopServing           context.CancelFunc
	leave                 chan struct{}
	leaveOnce             sync.Once
	agreed                atomic.Bool // the cluster has all our pools

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
	undo   []func() error // what start has opened, in order
}

// startNode starts a gateway. It serves, and refuses what it may not admit yet,
// when startNode returns; ready tells when it takes part. Sockets that are open
// already, by name, are listened on in place of the configured addresses.
func startNode(cfg *config.Config, log *slog.Logger, sockets map[string][]net.Listener) (*node, error) {
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{
		cfg: cfg, sockets: sockets, log: log, started: time.Now(),
		ctx: ctx, cancel: cancel, failed: make(chan error, 4), leave: make(chan struct{}),
	}
	n.undo = append(n.undo, n.closeSockets)
	// The structured lines go where the other lines go, the others to standard output.
	n.accessLog, n.commonLog = n.openLog(os.Stderr), n.openLog(os.Stdout)
	n.read.Store(&configRead{at: n.started})
	n.serving, n.stopServing = context.WithCancel(ctx)
	for _, step := range []func(context.Context) error{
		n.startMetrics, n.startTraces, n.startLinks, n.startCluster, n.startGateway, n.startClients, n.startAdmin,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	return n, nil
}

// openLog returns a writer of access log lines that makes no request wait for the
// reader of w.
func (n *node) openLog(w io.Writer) *telemetry.Buffered {
	lines := telemetry.NewQueued(w)
	b := telemetry.NewBuffered(lines)
	n.undo = append(n.undo, func() error { lines.Close(logPatience); return nil }, b.Flush)
	return b
}

func (n *node) startMetrics(context.Context) error {
	v, revision := buildVersion()
	registry := prometheus.NewRegistry()
	var err error
	if n.metrics, err = telemetry.New(registry, telemetry.Config{
		Gateway: n.cfg.Node.Name, RefusalCauses: refusalCauses(), Version: v, Revision: revision,
	}); err != nil {
		return err
	}
	for _, p := range n.cfg.Pools {
		n.metrics.AddPool(p.Name)
	}
	tokens, err := readTokens(n.cfg.Node.AdminTokenFile)
	if err != nil {
		return err
	}
	n.tokens.Store(&tokens)
	n.admin, err = admin.NewServer(admin.Config{
		Source: n, Lines: lines{n}, Peers: n, Metrics: registry, Control: control{n}, Tickets: ticketDesk{n}, Tokens: n.adminTokens, Log: n.log,
	})
	return err
}

func (n *node) startTraces(context.Context) error {
	if n.cfg.Telemetry.OTLPEndpoint == "" {
		return nil
	}
	v, _ := buildVersion()
	tracing, err := telemetry.NewTracing(telemetry.TracingConfig{
		Endpoint: n.cfg.Telemetry.OTLPEndpoint, Gateway: n.cfg.Node.Name, Version: v, Metrics: n.metrics, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.tracer = tracing.Tracer()
	n.undo = append(n.undo, tracing.Close)
	return nil
}

// mailbox hands the links' messages to the gateway, which itself needs the links
// to be made. Links deliver nothing before the gateway has set their peers.
type mailbox struct {
	to atomic.Pointer[gateway.Gateway]
}

// Deliver implements transport.Handler.
func (m *mailbox) Deliver(from kmutex.Node, pool string, msg kmutex.Message) error {
	return m.to.Load().Deliver(from, pool, msg)
}

// receive takes in the pools' letters.
func (m *mailbox) receive(from kmutex.Node, topic string, payload []byte) error {
	return m.to.Load().ReceivePayload(from, topic, payload)
}

// missing tells whom the gateway misses, as soon as there is one.
func (m *mailbox) missing() map[kmutex.Node]time.Time {
	if g := m.to.Load(); g != nil {
		return g.Missing()
	}
	return nil
}

func (n *node) startLinks(context.Context) error {
	n.warnOfOpenSecrets()
	var err error
	if n.trust, err = readTrust(n.cfg.Cluster, n.cfg.Node.Name); err != nil {
		return err
	}
	n.peerExpiry.Store(&n.trust.expires)
	listen, _, advertise := n.cfg.ForPeers()
	n.links, err = transport.Listen(transport.Config{
		Listen: listen, Advertise: advertise.String(), TLS: n.trust.secure,
		Handler: &n.mail, Receive: n.mail.receive, Observer: linkObserver{n.metrics}, Logger: n.log,
		// A silent link is down after half a lease if something depends on it, else
		// after three quarters. What half a lease does not bring up again is reported.
		PingInterval: n.cfg.Cluster.Lease / 2,
	})
	if err != nil {
		return fmt.Errorf("listen.peer %s: %w", listen, err)
	}
	n.undo = append(n.undo, n.links.Close)
	return nil
}

func (n *node) startCluster(ctx context.Context) error {
	boot := rand.Text()
	v, _ := buildVersion()
	expect := n.cfg.Bootstrap()
	peer := n.links.Addr().String()
	_, listen, advertise := n.cfg.ForPeers()
	var err error
	n.gossip, err = serfring.Start(serfring.Config{
		Name: n.cfg.Node.Name, Boot: boot, Version: v, PeerAddr: peer, Expect: expect,
		Bind: listen, Advertise: advertise.String(),
		Join: n.cfg.Cluster.Join, Keys: n.trust.gossip, Logger: n.log,
		// Gossip only suspects, so it may ask seldom; an answer has to have a round trip.
		ProbeInterval: max(200*time.Millisecond, n.cfg.Cluster.Lease/5), ProbeTimeout: max(100*time.Millisecond, n.cfg.Cluster.Lease/8),
	})
	if err != nil {
		return err
	}
	n.undo = append(n.undo, n.gossip.Close)
	n.cluster, err = membership.Start(ctx, membership.Config{
		Name: n.cfg.Node.Name, Boot: boot, PeerAddr: peer, DataDir: n.cfg.Node.DataDir,
		BootstrapExpect: expect, Joining: len(n.cfg.Cluster.Join) > 0, Discovery: n.gossip, Links: n.links, Missing: n.mail.missing,
		Lease: n.cfg.Cluster.Lease, AdminTokens: n.adminTokens,
		Raft: n.links.Stream(transport.StreamRaft), Control: n.links.Stream(transport.StreamControl),
		Stored:    func(took time.Duration) { n.metrics.DiskWrite(telemetry.DiskRaft, took) },
		Committed: n.metrics.Committed, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.undo = append(n.undo, n.cluster.Close)
	n.wg.Go(func() {
		select {
		case err := <-n.cluster.Failed():
			n.failed <- err
		case <-ctx.Done():
		}
	})
	return nil
}

func (n *node) startGateway(ctx context.Context) error {
	var err error
	n.gateway, err = gateway.New(gateway.Config{
		Links: n.links, Exchange: n.links.Stream(transport.StreamPools), Views: n.cluster,
		Pools: gatewayPools(n.cfg), Replicas: n.cfg.Cluster.Replicas, DataDir: n.cfg.Node.DataDir, Observer: poolObservers{n.metrics}, Logger: n.log,
		Fleet: admin.NewPeerHandler(n, lines{n}),
	})
	if err != nil {
		return err
	}
	n.undo = append(n.undo, n.gateway.Close)
	n.mail.to.Store(n.gateway)
	n.metrics.SetSource(stateSource{n})
	n.gateway.Start()
	n.refusals = &refusalLog{log: n.log, counts: make(map[refusalKind]int)}
	n.wg.Go(func() { n.sample(ctx) })
	n.wg.Go(func() { n.logViews(ctx) })
	n.wg.Go(func() { n.refusals.run(ctx) })
	n.wg.Go(func() {
		if err := n.definePools(ctx, n.cfg.Pools); err != nil {
			n.failed <- err
			return
		}
		if ctx.Err() != nil {
			return
		}
		n.agreed.Store(true)
		self, _ := n.cluster.Self()
		n.log.Info("ready", slog.Uint64("node", uint64(self)), slog.Int("gateways", len(n.cluster.View().Members)))
	})
	return nil
}

// definePools proposes pools until the cluster has them, and tells where it has
// agreed on something else. It returns nil when ctx ends.
func (n *node) definePools(ctx context.Context, pools []config.Pool) error {
	if n.cluster.Ready(ctx) != nil {
		return nil
	}
	for _, p := range pools {
		spec := membership.Pool{Name: p.Name, K: p.K, Binding: string(p.Binding), Reclaim: string(p.Reclaim)}
		if p.Reclaim == config.ReclaimHold {
			spec.HoldMax = p.Hold.Max
		}
		err := n.cluster.DefinePool(ctx, spec)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
		if err := n.holdFits(p); err != nil {
			return err
		}
	}
	for _, p := range pools {
		if agreed, ok := n.cluster.View().Pool(p.Name); ok && (agreed.K != p.K || agreed.Binding != string(p.Binding)) {
			n.log.Warn("the cluster has agreed on other values for a pool than the configuration says; they hold",
				slog.String("pool", p.Name), slog.Int("agreed_k", agreed.K), slog.Int("configured_k", p.K),
				slog.String("agreed_binding", agreed.Binding), slog.String("configured_binding", string(p.Binding)))
		}
	}
	return nil
}

// holdFits returns an error if requests of a pool could hold their slots for longer
// than the cluster waits before it gives those of a lost gateway to others.
func (n *node) holdFits(p config.Pool) error {
	agreed, ok := n.cluster.View().Pool(p.Name)
	if !ok || agreed.Reclaim != membership.ReclaimHold || p.Hold.Max > 0 && p.Hold.Max <= agreed.HoldMax {
		return nil
	}
	return fmt.Errorf("pool %s: hold.max is %v, but the cluster has agreed (reclaim: hold) that no request takes longer than %v; write hold: {max: %v} or less",
		p.Name, p.Hold.Max, agreed.HoldMax, agreed.HoldMax)
}

func (n *node) startClients(context.Context) error {
	cfg, err := n.proxyConfig(n.cfg)
	if err != nil {
		return err
	}
	n.upstreams, _ = n.upstreams.keep(&cfg)
	if n.handler, err = proxy.New(cfg); err != nil {
		return err
	}
	n.undo = append(n.undo, func() error { n.handler.Close(); return nil })
	return n.listenForClients()
}

// standing is the incarnation of this gateway as long as it has a lease, else 0.
func (n *node) standing() uint64 {
	s := n.cluster.Standing()
	if !s.Valid(time.Now()) {
		return 0
	}
	return uint64(s.Node)
}

// proxyConfig fits the proxy into this gateway.
func (n *node) proxyConfig(cfg *config.Config) (proxy.Config, error) {
	out, err := proxyConfig(cfg)
	if err != nil {
		return out, err
	}
	out.Admitter, out.Observer, out.Logger = admitter{n}, requestObserver{n.metrics, n.refusals}, n.log
	out.Tracer, out.Gateway = n.tracer, n.cfg.Node.Name
	out.AccessWriter = n.commonLog
	if out.AccessLog == proxy.AccessJSON {
		out.AccessWriter = n.accessLog
	}
	out.Standing, out.Tickets, out.Draining = n.standing, redeemer{n}, n.leaving.Load
	out.TicketHandler, err = n.ticketHandler(cfg.Pools)
	return out, err
}

// ticketHandler serves the tickets of pools that have them on the client address;
// nil when there are none.
func (n *node) ticketHandler(pools []config.Pool) (http.Handler, error) {
	open := make(map[string]bool)
	for _, p := range pools {
		if p.Tickets {
			open[p.Name] = true
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	h, err := admin.NewTicketHandler(admin.TicketConfig{
		Tickets: ticketDesk{n}, Open: func(pool string) bool { return open[pool] }, MaxTTL: proxy.MaxTicketTTL, Log: n.log,
	})
	if err != nil {
		return nil, err
	}
	// Who watches a ticket would keep the server from shutting down.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(n.serving, cancel)()
		h.ServeHTTP(w, r.WithContext(ctx))
	}), nil
}

func (n *node) startAdmin(ctx context.Context) error {
	var err error
	n.adminAddr, err = n.serve("listen.admin", n.cfg.Listen.Admin, n.admin.Serve)
	n.undo = append(n.undo, n.admin.Close)
	n.wg.Go(func() { n.watchTrust(ctx) })
	if err == nil {
		err = n.unusedSockets()
	}
	if err == nil {
		n.log.Info("listening", slog.String("http", n.clientAddr.String()), slog.String("admin", n.adminAddr.String()),
			slog.String("peer", n.links.Addr().String()), slog.String("gossip", n.gossip.Addr()))
		n.warnOfOpenPorts()
	}
	return err
}

// serve runs a server on an address, and returns where it listens.
func (n *node) serve(key, addr string, serve func(net.Listener) error) (net.Addr, error) {
	listeners, err := n.listen(key, addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", key, addr, err)
	}
	for _, l := range listeners {
		n.wg.Go(func() {
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				n.failed <- fmt.Errorf("%s %s: %w", key, l.Addr(), err)
			}
		})
	}
	return listeners[0].Addr(), nil
}

// shutdown leaves the cluster in order: waiting requests are refused, those in
// flight finish until ctx ends, then the others form the line without this
// gateway. Whoever leaves in order gives its slots back, so a gateway that still has
// requests in flight does not: the others wait for the end of its lease.
func (n *node) shutdown(ctx context.Context) error {
	n.leaving.Store(true)
	n.log.Info("draining", slog.Int("in_flight", n.inFlight()))
	n.stopServing()
	err := errors.Join(n.gateway.Drain(ctx, n.cfg.Node.Drain == config.DrainFinish), n.clients.Shutdown(ctx))
	if err != nil {
		n.log.Warn("requests were broken off", slog.Any("error", err))
		err = n.clients.Close()
	}
	if !n.brokenOff() {
		n.log.Warn("requests are still in flight: the cluster is left without a word, and has their slots back when the lease has run out")
		return errors.Join(err, n.close())
	}
	const goodbye = 2 * time.Second // longer only helps when nobody is left to hear it
	leave, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if e := n.cluster.Leave(leave); e != nil {
		n.log.Warn("the cluster was left without a word", slog.Any("error", e))
	} else if e := n.gossip.Leave(); e != nil {
		n.log.Warn("gossip was left without a word", slog.Any("error", e))
	}
	err = errors.Join(err, n.close())
	n.log.Info("stopped")
	return err
}

// brokenOff ends what is in flight and reports whether that has worked.
func (n *node) brokenOff() bool {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return n.gateway.BreakOff(ctx) == nil
}

// drain takes the gateway out of service; it stays in the cluster.
func (n *node) drain() {
	if n.leaving.Swap(true) {
		return
	}
	n.log.Info("draining, and staying in the cluster", slog.Int("in_flight", n.inFlight()))
	n.wg.Go(func() {
		if n.gateway.Drain(n.ctx, n.cfg.Node.Drain == config.DrainFinish) == nil {
			n.log.Info("drained")
		}
	})
}

// askToLeave has whoever runs the node shut it down.
func (n *node) askToLeave() { n.leaveOnce.Do(func() { close(n.leave) }) }

func (n *node) inFlight() int {
	total := 0
	for _, p := range n.gateway.Pools() {
		total += p.InFlight
	}
	return total
}

// close ends everything at once, in the reverse order of its start.
func (n *node) close() error {
	n.cancel()
	var errs []error
	for i := len(n.undo) - 1; i >= 0; i-- {
		errs = append(errs, n.undo[i]())
	}
	n.undo = nil
	n.wg.Wait()
	return errors.Join(errs...)
}
