package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// demoUpstreamCommand serves the sample upstream alone.
type demoUpstreamCommand struct {
	Listen string        `name:"listen" default:"127.0.0.1:9000" placeholder:"ADDR" help:"Address to listen on (default ${default})."`
	Hold   time.Duration `name:"hold" default:"500ms" help:"Mean time that it takes for a request (default ${default})."`
	SCV    int           `name:"scv" default:"0" enum:"0,1" help:"Squared coefficient of variation of that time: 0 constant, 1 exponential."`
}

func (demoUpstreamCommand) Help() string {
	return `Every 5 s it prints how many requests it has at once, and the most that it has
had: that shows whether k holds. GET /stats returns it as JSON.

Examples:
  kgate demo upstream
  kgate demo upstream --listen :80 --hold 2s --scv 1

Ends with SIGINT or SIGTERM. Exit codes: 0 ended by a signal, 1 it cannot serve,
2 wrong command line.`
}

func (c *demoUpstreamCommand) Validate() error {
	if c.Hold < 0 {
		return errors.New("--hold cannot be negative")
	}
	return nil
}

// Run serves until a signal comes.
func (c *demoUpstreamCommand) Run(std streams) error {
	u := &demo.Upstream{Hold: c.Hold, SCV: c.SCV}
	at, stop, err := serveUpstream(u, c.Listen)
	if err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()
	fmt.Fprintf(std.out, "serving at http://%s, each request for %v on average\n", at, c.Hold)
	tell(std.out, u, ctx.Done())
	return stop()
}

// serveUpstream serves the sample upstream until stop.
func serveUpstream(u *demo.Upstream, addr string) (at net.Addr, stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with Close
	return l.Addr(), server.Close, nil
}

// tell prints what the upstream counts, every 5 s and at the end.
func tell(out io.Writer, u *demo.Upstream, end <-chan struct{}) {
	for tick, ended := time.Tick(5*time.Second), false; !ended; {
		select {
		case <-tick:
		case <-end:
			ended = true
		}
		s := u.Stats()
		fmt.Fprintf(out, "%d in flight, most %d, %d served, %d aborted\n", s.InFlight, s.Max, s.Served, s.Aborted)
	}
}

// demoLoadCommand runs the clients alone.
type demoLoadCommand struct {
	Duration time.Duration `name:"duration" default:"20s" help:"How long to run (default ${default})."`
	Targets  []string      `arg:"" name:"url" help:"Where to send requests: http://HOST:PORT/PATH, with =N at the end for N clients (default 30)."`
}

func (demoLoadCommand) Help() string {
	return `Each client sends its next request as soon as it has an answer.

Examples:
  kgate demo load http://127.0.0.1:8080
  kgate demo load http://10.0.0.1:8080=63 http://10.0.0.2:8080=18 http://10.0.0.3:8080=9

Exit codes: 0 all were answered, 1 some were not, 2 wrong command line.`
}

// Run runs the clients and prints how long they waited.
func (c *demoLoadCommand) Run(std streams) error {
	if c.Duration <= 0 {
		return usageError("--duration must be more than 0")
	}
	cfg := demo.LoadConfig{Warmup: min(2*time.Second, c.Duration/4)}
	cfg.Duration = c.Duration - cfg.Warmup
	for _, t := range c.Targets {
		url, clients := t, 30
		if i := strings.LastIndex(t, "="); i >= 0 {
			var err error
			if clients, err = strconv.Atoi(t[i+1:]); err != nil || clients < 1 {
				return usageError("%s: %q is not a number of clients", t, t[i+1:])
			}
			url = t[:i]
		}
		cfg.Targets = append(cfg.Targets, demo.Target{Name: url, URL: url, Clients: clients})
	}
	ctx, cancel := untilSignal()
	defer cancel()
	r, err := demo.Run(ctx, cfg)
	if err != nil {
		return usageError("%w", err)
	}
	printLoad(std.out, r)
	switch {
	case r.Overall.Count == 0:
		return errors.New("no request was answered: does a gateway listen there?")
	case r.Overall.Errors > 0:
		return fmt.Errorf("%d requests failed, by status (0: no answer): %v", r.Overall.Errors, r.Overall.Failed)
	}
	return nil
}

// printLoad prints the clients' results.
func printLoad(out io.Writer, r *demo.Result) {
	fmt.Fprintf(out, "answers                         %d, %.0f/s, %d failed\n\n", r.Overall.Count, r.Overall.PerSecond, r.Overall.Errors)
	width := len("wait (ms)")
	for _, s := range r.Targets {
		width = max(width, len(s.Name))
	}
	fmt.Fprintf(out, "%-*s %9s %9s %9s %9s %9s %9s\n", width, "wait (ms)", "answers", "mean", "p50", "p99", "max", "spread")
	for _, s := range append(r.Targets, r.Overall) {
		fmt.Fprintf(out, "%-*s %9d", width, s.Name, s.Count)
		for _, d := range []time.Duration{s.Mean, s.P50, s.P99, s.Max, s.Spread()} {
			fmt.Fprintf(out, " %9.1f", d.Seconds()*1000)
		}
		fmt.Fprintln(out)
	}
}
