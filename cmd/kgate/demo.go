package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/telemetry"
)

// demoCommand is the demonstration, or its parts.
type demoCommand struct {
	All      demoAllCommand      `cmd:"" default:"withargs" help:"Everything in one process: three gateways, upstream, load (the default)."`
	Upstream demoUpstreamCommand `cmd:"" help:"Only the sample upstream, which counts its concurrent requests."`
	Load     demoLoadCommand     `cmd:"" help:"Only the load, for gateways that are running."`
}

func (demoCommand) Help() string {
	return `Without a command this is kgate demo all, with the same flags
(kgate demo all --help).

Examples:
  kgate demo --duration 20s
  kgate demo --k 3 --scv 4 --clients 200`
}

// demoAllCommand runs the whole demonstration in one process.
type demoAllCommand struct {
	Duration time.Duration `name:"duration" placeholder:"TIME" help:"End by itself after this time (default: run until interrupted)."`
	K        int           `name:"k" default:"6" help:"How many requests may be in the upstream at once."`
	Clients  int           `name:"clients" default:"90" help:"Closed-loop clients: 70, 20 and 10 % of them at the three gateways."`
	Hold     time.Duration `name:"hold" default:"40ms" help:"Mean time that the upstream takes for a request."`
	SCV      float64       `name:"scv" default:"1" help:"Squared coefficient of variation of that time: 0 constant, 1 exponential."`
	Binding  string        `name:"binding" default:"late" enum:"late,early" help:"late, or early as in the paper."`
	LogLevel string        `name:"log-level" default:"error" enum:"debug,info,warn,error" help:"Lowest level that the gateways log."`
}

func (demoAllCommand) Help() string {
	return `Three gateways in this process, a sample upstream that counts its own
concurrency, and more clients at some gateways than at others. Everything is on
127.0.0.1 and on free ports.

Examples:
  kgate demo --duration 20s
  kgate demo --k 3 --scv 4 --clients 200

Exit codes: 0 k was never exceeded, 1 it was or the demo could not run, 2 wrong
command line.`
}

func (c *demoAllCommand) Validate() error {
	switch {
	case c.K < 1 || c.Clients < 1:
		return errors.New("--k and --clients must be at least 1")
	case c.Duration < 0 || c.Hold <= 0 || c.SCV < 0:
		return errors.New("--duration and --scv cannot be negative, and --hold must be more than 0")
	}
	return nil
}

const demoGateways = 3

func (c *demoAllCommand) Run(std streams) error {
	log, _, err := telemetry.NewLogger(std.err, c.LogLevel, "text")
	if err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()

	upstream, err := demo.NewUpstream(demo.UpstreamConfig{Hold: demo.Distribution{Mean: c.Hold, SCV: c.SCV}, Seed: 1, K: c.K})
	if err != nil {
		return err
	}
	at, stop, err := serveUpstream(upstream)
	if err != nil {
		return err
	}
	defer stop()
	fleet, err := c.startFleet(ctx, at, log)
	defer func() {
		for _, n := range fleet {
			if err := n.close(); err != nil {
				log.Warn("gateway ended with an error", slog.Any("error", err))
			}
		}
	}()
	if err != nil {
		return err
	}
	c.announce(std.out, at, fleet)
	result, err := c.load(ctx, std.out, upstream, fleet)
	if err != nil {
		return err
	}
	return c.summary(std.out, result)
}

// serveUpstream serves the sample upstream on a free port.
func serveUpstream(u *demo.Upstream) (at *url.URL, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with stop
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, func() { _ = server.Close(); <-done }, nil
}

// startFleet starts the gateways and waits until all are ready.
func (c *demoAllCommand) startFleet(ctx context.Context, upstream *url.URL, log *slog.Logger) ([]*server, error) {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var fleet []*server
	for i := range demoGateways {
		cfg := config.Default()
		cfg.Node.Name = fmt.Sprintf("gw-%d", i+1)
		onLoopback(&cfg.Listen)
		cfg.Cluster.BootstrapExpect = demoGateways
		cfg.Log.Access = false
		if i > 0 {
			cfg.Cluster.Join = []string{fleet[0].node.PeerAddr()}
		}
		pool := config.DefaultPool()
		pool.Name, pool.K, pool.Binding = "demo", c.K, admission.Binding(c.Binding)
		pool.Upstreams = []*url.URL{upstream}
		cfg.Pools = []config.Pool{pool}
		cfg.Routes = []config.Route{{Pool: pool.Name}}
		if err := errors.Join(cfg.Validate(), cfg.Resolve()); err != nil {
			return fleet, err
		}
		n, err := startServer(cfg, log.With(slog.String("gateway", cfg.Node.Name)), nil)
		if err != nil {
			return fleet, err
		}
		fleet = append(fleet, n)
	}
	for _, n := range fleet {
		if err := n.awaitReady(ctx); err != nil {
			return fleet, err
		}
	}
	return fleet, nil
}

// onLoopback makes a gateway listen on free ports of 127.0.0.1.
func onLoopback(l *config.Listen) {
	for _, addr := range []*string{&l.HTTP, &l.Admin, &l.Peer} {
		*addr = "127.0.0.1:0"
	}
}

// awaitReady waits until the gateway takes part.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- s.node.Ready(ctx) }()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("gateway %s: %w", s.cfg.Node.Name, err)
		}
		return nil
	case err := <-s.failed:
		return err
	}
}

func (c *demoAllCommand) announce(out io.Writer, upstream *url.URL, fleet []*server) {
	fmt.Fprintf(out, "upstream  %s  holds each request for %v on average (SCV %g)\n", upstream, c.Hold, c.SCV)
	clients := c.split()
	for i, n := range fleet {
		fmt.Fprintf(out, "%s      http://%s  %d clients  status http://%s/\n", n.cfg.Node.Name, n.clientAddr, clients[i], n.adminAddr)
	}
	fmt.Fprintf(out, "k = %d over all gateways, %s binding\n\n", c.K, c.Binding)
}

// split deals the clients out unevenly.
func (c *demoAllCommand) split() [demoGateways]int {
	first, second := c.Clients*7/10, c.Clients*2/10
	return [demoGateways]int{first, second, c.Clients - first - second}
}

// load runs the clients and shows their progress.
func (c *demoAllCommand) load(ctx context.Context, out io.Writer, upstream *demo.Upstream, fleet []*server) (*demoResult, error) {
	const endless = 100 * 24 * time.Hour
	cfg := demo.LoadConfig{
		Warmup: min(2*time.Second, c.Duration/4), Duration: endless, Seed: 1,
		Opened: upstream.Reset,
	}
	if c.Duration > 0 {
		cfg.Duration = c.Duration - cfg.Warmup
	}
	for i, clients := range c.split() {
		cfg.Targets = append(cfg.Targets, demo.Target{Name: fleet[i].cfg.Node.Name, URL: "http://" + fleet[i].clientAddr.String() + "/", Clients: clients})
	}
	most := 0
	show := newProgress(out, c.Duration)
	cfg.Progress = func(p demo.Progress) {
		s := upstream.Stats()
		most = max(most, s.Max)
		show.update(p, s, c.K)
	}
	var at demo.Stats
	cfg.Closed = func() { at = upstream.Stats() }
	r, err := demo.Run(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return &demoResult{load: r, upstream: at, most: max(most, at.Max)}, nil
}

type demoResult struct {
	load     *demo.Result
	upstream demo.Stats
	most     int
}

// summary prints the results of the run, and fails if k was exceeded.
func (c *demoAllCommand) summary(out io.Writer, r *demoResult) error {
	fmt.Fprintf(out, "\nmost in flight at the upstream  %d  (k = %d)\n", r.most, c.K)
	fmt.Fprintf(out, "slots busy                      %.1f %%\n", 100*r.upstream.Busy)
	printLoad(out, r.load)
	if r.most > c.K {
		return &codedError{code: exitFailure, err: fmt.Errorf("k was exceeded: %d requests in flight, k = %d", r.most, c.K)}
	}
	return nil
}

// printLoad prints the clients' results.
func printLoad(out io.Writer, r *demo.Result) {
	fmt.Fprintf(out, "answers                         %d, %.0f/s, %d failed\n\n", r.Overall.Access.Count, r.Overall.PerSecond, r.Overall.Errors())
	width := len("wait (ms)")
	for _, s := range r.Targets {
		width = max(width, len(s.Name))
	}
	fmt.Fprintf(out, "%-*s %9s %9s %9s %9s %9s %9s\n", width, "wait (ms)", "answers", "mean", "p50", "p99", "max", "spread")
	for _, s := range append(r.Targets, r.Overall) {
		a := s.Access
		fmt.Fprintf(out, "%-*s %9d %9.1f %9.1f %9.1f %9.1f %9.1f\n", width, s.Name, a.Count, millis(a.Mean), millis(a.P50), millis(a.P99), millis(a.Max), millis(a.Spread()))
	}
}

// progress shows a run: a few lines that are overwritten on a terminal, else a line now
// and then.
type progress struct {
	out      io.Writer
	terminal bool
	total    time.Duration
	lines    int
	updates  int
}

func newProgress(out io.Writer, total time.Duration) *progress {
	return &progress{out: out, total: total, terminal: asTerminal(out) != nil}
}

func (p *progress) update(now demo.Progress, s demo.Stats, k int) {
	p.updates++
	const every = 5 // updates, off a terminal
	if !p.terminal && p.updates%every != 1 {
		return
	}
	var b strings.Builder
	if p.terminal && p.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", p.lines)
	}
	fmt.Fprintf(&b, "%4.0f s  upstream %d/%d in flight, most %d", now.Elapsed.Seconds(), s.InFlight, k, s.Max)
	if p.total > 0 {
		fmt.Fprintf(&b, "  (of %v)", p.total)
	}
	for _, t := range now.Targets {
		separator := "\n        "
		if !p.terminal {
			separator = "  |  "
		}
		fmt.Fprintf(&b, "%s%s %d waiting, %d done, wait %.0f ms", separator, t.Name, t.Waiting, t.Completed, millis(t.MeanAccess))
	}
	b.WriteString("\n")
	p.lines = 1 + len(now.Targets)
	fmt.Fprint(p.out, b.String())
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
