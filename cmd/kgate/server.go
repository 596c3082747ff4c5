package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/telemetry"
	"github.com/kgate/kgate/telemetry/otlp"
	"github.com/kgate/kgate/telemetry/prom"
)

// server is a node with what it needs as a process: a configuration file, listeners,
// files with certificates and secrets, logs and traces.
type server struct {
	node *gateway.Gateway
	cfg  *config.Config
	log  *slog.Logger

	metrics *telemetry.Metrics
	// accessLines is what the access log is written to.
	accessLines *telemetry.Queued
	tracer      trace.TracerProvider // nil: no traces
	clients     *downstream.Server
	setPeerTLS  func(*tls.Config) error // of the node

	upstreams    upstreamTrust             // in use by the node
	certificates *downstream.Certificates  // of listen.https; nil: none
	trust        *trust                    // owned by watchTrust once that runs
	lastTrust    *trust                    // read last, in use or not; of watchTrust
	lastTokens   []string                  // the same of the admin tokens
	peerExpiry   atomic.Pointer[time.Time] // of trust
	listening    atomic.Bool               // all of the above is set
	read         atomic.Pointer[configRead]
	accessLog    *telemetry.Buffered // takes lines in JSON
	tokens       atomic.Pointer[[]string]
	once         oncelog.Limit

	sockets               map[string][]net.Listener // open, and not served yet
	activated             []*inherited              // those for clients that were open before
	clientAddr, adminAddr net.Addr                  // of a witness: only adminAddr

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error            // a listener
	leave  chan struct{}         // closed when an operator asks this gateway to leave
	again  chan chan<- rereading // where an operator asks for the configuration to be read again
	undo   []func() error        // what start has opened, in order
}

// startServer starts a gateway. When startServer returns, it serves, and refuses what it may
// not admit yet; Ready returns when it takes part in the cluster. Sockets that are open
// already, by name, are used in place of the configured addresses.
func startServer(cfg *config.Config, log *slog.Logger, sockets map[string][]net.Listener) (*server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{cfg: cfg, sockets: sockets, log: log, ctx: ctx, cancel: cancel, failed: make(chan error, 4), leave: make(chan struct{}), again: make(chan chan<- rereading)}
	s.undo = append(s.undo, s.closeSockets)
	s.openLog()
	s.read.Store(&configRead{at: time.Now()})
	for _, step := range []func() error{s.readSecrets, s.openSockets, s.startNode, s.listenForClients, s.listenForOperators} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	s.listening.Store(true)
	s.warnOfOpenPorts()
	s.wg.Go(func() { s.watchTrust(s.ctx) }) // which owns s.trust from now on
	at := []any{slog.String("admin", s.adminAddr.String()), slog.String("peer", s.node.PeerAddr())}
	if s.clientAddr != nil {
		at = append([]any{slog.String("http", s.clientAddr.String())}, at...)
	}
	s.log.Info("listening", append(at, slog.String("drain_timeout", cfg.DrainTimeout().String()))...)
	return s, nil
}

// openLog makes the access log; it never waits for the reader of its lines.
func (s *server) openLog() {
	s.accessLines = telemetry.NewQueued(os.Stderr)
	s.accessLog = telemetry.NewBuffered(s.accessLines)
	s.undo = append(s.undo, func() error { s.accessLines.Close(logPatience); return nil }, s.accessLog.Flush)
}

// readSecrets reads what the configuration keeps in files.
func (s *server) readSecrets() error {
	tokens, err := readTokens(s.ctx, s.cfg.Node.AdminTokenFile)
	if err != nil {
		return err
	}
	s.tokens.Store(&tokens)
	s.warnOfOpenSecrets()
	if s.trust, err = readTrust(s.cfg.Cluster, s.cfg.Node.Name); err != nil {
		return err
	}
	s.peerExpiry.Store(&s.trust.expires)
	return nil
}

// startNode starts metrics and traces, and then the node.
func (s *server) startNode() error {
	version, revision := buildVersion()
	registry := prometheus.NewRegistry()
	var err error
	s.metrics, err = prom.New(registry, prom.Config{
		Config: telemetry.Config{Version: version, Revision: revision}, Gateway: s.cfg.Node.Name,
	})
	if err != nil {
		return err
	}
	s.metrics.CountDropped(telemetry.LogAccess, s.accessLines)
	if endpoint := s.cfg.Telemetry.OTLPEndpoint; endpoint != "" {
		tracing, err := otlp.New(otlp.Config{
			Endpoint: endpoint, Gateway: s.cfg.Node.Name, Version: version, Metrics: s.metrics, Logger: s.log,
		})
		if err != nil {
			return err
		}
		s.tracer = tracing.Provider()
		s.undo = append(s.undo, tracing.Close)
	}
	cfg, err := s.nodeConfig(s.cfg)
	if err != nil {
		return err
	}
	s.upstreams = s.upstreams.keep(cfg.Pools)
	for _, p := range cfg.Pools {
		if len(p.Upstreams) == 0 {
			s.log.Info("the pool has no upstreams: it gives out slots and proxies nothing", slog.String("pool", p.Name))
		}
		if drain := s.cfg.DrainTimeout(); p.HoldMax == 0 || p.HoldMax > drain {
			s.log.Info("the pool lets a request take longer than drain.timeout: a stop aborts such a request",
				slog.String("pool", p.Name), slog.String("hold_max", p.HoldMax.String()), slog.String("drain_timeout", drain.String()))
		}
	}
	cfg.Name, cfg.Version, cfg.DataDir = s.cfg.Node.Name, version, s.cfg.Node.DataDir
	cfg.Witness = s.cfg.Node.Role == config.RoleWitness
	cfg.ServeWaiting = s.cfg.Drain.Waiting == config.WaitingFinish
	cfg.AdminTokens, cfg.Logger = s.adminTokens, s.log
	cfg.Process = gateway.Process{
		Metrics: s.metrics, Gatherer: registry, State: s.state, Profiles: profiles(), OnLeave: func() { close(s.leave) },
		Reload: s.readAgain, Troubles: s.troubles,
	}
	peer, advertise := s.cfg.ForPeers()
	cfg.Peers = kgate.Peers{
		Listen: peer, Advertise: advertise, Join: s.cfg.Cluster.Join, Expect: s.cfg.Bootstrap(),
		Lease: s.cfg.Cluster.Lease, TLS: s.trust.secure,
		Insecure: true, // the file has been checked, with the names of its keys
	}
	if s.node, err = gateway.Start(s.ctx, cfg); err != nil {
		return err
	}
	s.setPeerTLS = s.node.SetPeerTLS
	s.undo = append(s.undo, s.node.Close)
	return nil
}

// state adds the state of the process to the metrics.
func (s *server) state(out *telemetry.State) {
	if s.clients != nil {
		out.ClientConnections = s.clients.Connections()
	}
	read := s.read.Load()
	out.Reloaded, out.ReloadFailed = read.at, read.err != nil
	out.Certificates = make(map[string]time.Time)
	if expires := s.peerExpiry.Load(); !expires.IsZero() {
		out.Certificates["peers"] = *expires
	}
	if s.certificates != nil {
		ends := slices.SortedFunc(maps.Values(s.certificates.Expiry()), time.Time.Compare)
		out.Certificates["clients"] = ends[0]
	}
}

// shutdown leaves the cluster in order: waiting requests are refused, those in flight, and those
// that come over kept connections and need not wait, may finish until ctx ends, and then the
// others go on without this gateway.
func (s *server) shutdown(ctx context.Context) error {
	for _, l := range s.activated {
		l.leave()
	}
	s.node.BeginDrain()
	err := errors.Join(s.clients.Shutdown(ctx), s.node.Drain(ctx))
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errors.New("drain.timeout has passed")
		}
		s.log.Warn("requests were aborted", slog.Any("error", err))
		err = s.clients.Close()
	}
	if e := s.node.Shutdown(ctx); ctx.Err() == nil { // otherwise it is logged already
		err = errors.Join(err, e)
	}
	err = errors.Join(err, s.close())
	s.log.Info("stopped")
	return err
}

// close ends everything at once, in the reverse order of its start.
func (s *server) close() error {
	s.cancel()
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	s.wg.Wait()
	return errors.Join(errs...)
}
