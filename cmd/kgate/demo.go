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
	"sync"
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
  kgate demo --k 3 --scv 0 --clients 200`
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
  kgate demo --k 3 --scv 0 --clients 200

Exit codes: 0 k was never exceeded, 1 it was or the demo could not run, 2 wrong
command line.`
}

func (c *demoAllCommand) Validate() error {
	switch {
	case c.K < 1 || c.Clients < 1:
		return errors.New("--k and --clients must be at least 1")
	case c.Duration < 0 || c.Hold <= 0:
		return errors.New("--duration cannot be negative, and --hold must be more than 0")
	case c.SCV != 0 && c.SCV != 1:
		return errors.New("--scv is 0 or 1")
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
	upstream, err := demo.NewUpstream(demo.UpstreamConfig{Hold: c.Hold, SCV: c.SCV, Seed: 1, K: c.K})
	if err != nil {
		return err
	}
	addr, _, stop, err := serveUpstream(upstream, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	at := &url.URL{Scheme: "http", Host: addr.String()}
	fmt.Fprintf(std.out, "upstream  %s  holds each request for %v on average (SCV %g)\n", at, c.Hold, c.SCV)
	load := demo.LoadConfig{Warmup: min(2*time.Second, c.Duration/4), Duration: 100 * 24 * time.Hour}
	if c.Duration > 0 {
		load.Duration = c.Duration - load.Warmup
	}
	first, second := c.Clients*7/10, c.Clients*2/10
	fleet, err := c.startFleet(ctx, at, log)
	for i, g := range fleet {
		defer func() {
			if err := g.close(); err != nil {
				log.Warn("gateway ended with an error", slog.Any("error", err))
			}
		}()
		clients := []int{first, second, c.Clients - first - second}[i]
		load.Targets = append(load.Targets, demo.Target{Name: g.cfg.Node.Name, URL: "http://" + g.clientAddr.String() + "/", Clients: clients})
	}
	if err != nil {
		return err
	}
	for i, t := range load.Targets {
		fmt.Fprintf(std.out, "%s      %s  %d clients  status http://%s/\n", t.Name, strings.TrimSuffix(t.URL, "/"), t.Clients, fleet[i].adminAddr)
	}
	fmt.Fprintf(std.out, "k = %d over all gateways, %s binding\n\n", c.K, c.Binding)
	return c.load(ctx, std.out, upstream, load)
}

// serveUpstream serves the sample upstream until stop; failed says why it ended.
func serveUpstream(u *demo.Upstream, addr string) (at net.Addr, failed <-chan error, stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, nil, nil, err
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }() // ends with Close
	return l.Addr(), ended, server.Close, nil
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
		g, err := startServer(cfg, log.With(slog.String("gateway", cfg.Node.Name)), nil)
		if err != nil {
			return fleet, err
		}
		fleet = append(fleet, g)
	}
	for _, g := range fleet {
		if err := g.node.Ready(ctx); err != nil {
			return fleet, fmt.Errorf("gateway %s: %w", g.cfg.Node.Name, err)
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

// load runs the clients, prints what they saw, and fails if k was exceeded.
func (c *demoAllCommand) load(ctx context.Context, out io.Writer, upstream *demo.Upstream, cfg demo.LoadConfig) error {
	most, ended, began := 0, make(chan struct{}), time.Now()
	var shown sync.WaitGroup
	shown.Go(func() {
		ticks := time.NewTicker(5 * time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				s := upstream.Stats()
				fmt.Fprintf(out, "%4.0f s  upstream %d/%d in flight, most %d, %d served\n", time.Since(began).Seconds(), s.InFlight, c.K, s.Max, s.Served)
			case <-ended:
				return
			}
		}
	})
	cfg.Opened = func() { most = upstream.Stats().Max; upstream.Reset() }
	var at demo.Stats
	cfg.Closed = func() { at = upstream.Stats() }
	r, err := demo.Run(ctx, cfg)
	close(ended)
	shown.Wait()
	if err != nil && ctx.Err() == nil {
		return err
	}
	most = max(most, at.Max)
	fmt.Fprintf(out, "\nmost in flight at the upstream  %d  (k = %d)\n", most, c.K)
	fmt.Fprintf(out, "slots busy                      %.1f %%\n", 100*at.Busy)
	printLoad(out, r)
	if most > c.K {
		return &codedError{code: exitFailure, err: fmt.Errorf("k was exceeded: %d requests in flight, k = %d", most, c.K)}
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

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
