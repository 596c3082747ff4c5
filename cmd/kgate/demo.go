package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

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
	return "Without a command this is kgate demo all, with the same flags\n(kgate demo all --help)."
}

// demoAllCommand runs the whole demonstration in one process.
type demoAllCommand struct {
	Duration time.Duration `name:"duration" placeholder:"TIME" help:"End by itself after this time (default: run until interrupted)."`
	K        int           `name:"k" default:"6" help:"How many requests may be in the upstream at once."`
	Clients  int           `name:"clients" default:"90" help:"Closed-loop clients: 70, 20 and 10 % of them at the three gateways."`
	Hold     time.Duration `name:"hold" default:"40ms" help:"Mean time that the upstream takes for a request."`
	SCV      int           `name:"scv" default:"1" enum:"0,1" help:"Squared coefficient of variation of that time: 0 constant, 1 exponential."`
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
	case c.Duration < 0 || c.Hold < 0:
		return errors.New("--duration and --hold cannot be negative")
	}
	return nil
}

func (c *demoAllCommand) Run(std streams) error {
	log, _, err := telemetry.NewLogger(std.err, "error", "text")
	if err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()
	upstream := &demo.Upstream{Hold: c.Hold, SCV: c.SCV}
	addr, stop, err := serveUpstream(upstream, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	at := &url.URL{Scheme: "http", Host: addr.String()}
	fmt.Fprintf(std.out, "upstream  %s  holds each request for %v on average (SCV %d)\n", at, c.Hold, c.SCV)
	load := demo.LoadConfig{Warmup: min(2*time.Second, c.Duration/4), Duration: 100 * 24 * time.Hour}
	if c.Duration > 0 {
		load.Duration = c.Duration - load.Warmup
	}
	var fleet []*server
	first, second := c.Clients*7/10, c.Clients*2/10
	for _, clients := range []int{first, second, c.Clients - first - second} {
		g, err := c.startGateway(fleet, at, log)
		if err != nil {
			return err
		}
		defer func() { _ = g.close() }()
		fleet = append(fleet, g)
		t := demo.Target{Name: g.cfg.Node.Name, URL: "http://" + g.clientAddr.String(), Clients: clients}
		load.Targets = append(load.Targets, t)
		fmt.Fprintf(std.out, "%s      %s  %d clients  status http://%s/\n", t.Name, t.URL, t.Clients, g.adminAddr)
	}
	fmt.Fprintf(std.out, "k = %d over all gateways\n\n", c.K)
	patient, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, g := range fleet {
		if err := g.node.Ready(patient); err != nil {
			return fmt.Errorf("gateway %s: %w", g.cfg.Node.Name, err)
		}
	}
	return c.load(ctx, std, upstream, load)
}

// startGateway starts one more gateway, on free ports.
func (c *demoAllCommand) startGateway(fleet []*server, upstream *url.URL, log *slog.Logger) (*server, error) {
	cfg := config.Default()
	cfg.Node.Name = fmt.Sprintf("gw-%d", len(fleet)+1)
	onLoopback(&cfg.Listen)
	cfg.Cluster.BootstrapExpect = 3
	cfg.Log.Access = false
	if len(fleet) > 0 {
		cfg.Cluster.Join = []string{fleet[0].node.PeerAddr()}
	}
	pool := config.DefaultPool()
	pool.Name, pool.K, pool.Upstreams = "demo", c.K, []*url.URL{upstream}
	cfg.Pools, cfg.Routes = []config.Pool{pool}, []config.Route{{Pool: pool.Name}}
	if err := errors.Join(cfg.Validate(), cfg.Resolve()); err != nil {
		return nil, err
	}
	return startServer(cfg, log.With(slog.String("gateway", cfg.Node.Name)), nil)
}

// onLoopback makes a gateway listen on free ports of 127.0.0.1.
func onLoopback(l *config.Listen) {
	l.HTTP, l.Admin, l.Peer = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
}

// load runs the clients, prints what they saw, and fails if k was exceeded.
func (c *demoAllCommand) load(ctx context.Context, std streams, upstream *demo.Upstream, cfg demo.LoadConfig) error {
	var began, at demo.Stats
	cfg.Opened, cfg.Closed = func() { began = upstream.Stats() }, func() { at = upstream.Stats() }
	var r *demo.Result
	var err error
	done := make(chan struct{})
	go func() {
		r, err = demo.Run(ctx, cfg)
		close(done)
	}()
	tell(std.out, upstream, done)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "\nmost in flight at the upstream  %d  (k = %d)\n", at.Max, c.K)
	fmt.Fprintf(std.out, "slots busy                      %.1f %%\n", 100*at.Busy(began, c.K))
	printLoad(std.out, r)
	if at.Max > c.K {
		return fmt.Errorf("k was exceeded: %d requests in flight, k = %d", at.Max, c.K)
	}
	return nil
}
