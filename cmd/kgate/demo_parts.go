package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// demoUpstreamCommand serves the sample upstream alone.
type demoUpstreamCommand struct {
	Listen string        `name:"listen" default:"127.0.0.1:9000" placeholder:"ADDR" help:"Address to listen on (default ${default})."`
	Hold   time.Duration `name:"hold" default:"500ms" help:"Mean time that it takes for a request (default ${default})."`
	SCV    float64       `name:"scv" default:"0" help:"Squared coefficient of variation of that time: 0 constant, 1 exponential."`
	Bytes  int           `name:"bytes" default:"0" placeholder:"N" help:"Size of an answer (default: a word)."`
	Every  time.Duration `name:"every" default:"5s" help:"How often it prints its counts (default ${default})."`
}

func (demoUpstreamCommand) Help() string {
	return `It prints how many requests it has at once, and the most that it has had: that
shows whether k holds. GET /stats returns it as JSON; POST /reset starts over.

Examples:
  kgate demo upstream
  kgate demo upstream --listen :80 --hold 2s --scv 1

Ends with SIGINT or SIGTERM. Exit codes: 0 ended by a signal, 1 it cannot serve,
2 wrong command line.`
}

// Run serves until a signal comes.
func (c *demoUpstreamCommand) Run(std streams) error {
	if c.Every <= 0 {
		return &codedError{code: exitUsage, err: errors.New("--every must be more than 0")}
	}
	u, err := demo.NewUpstream(demo.UpstreamConfig{Hold: c.Hold, SCV: c.SCV, Seed: 1, BodyBytes: c.Bytes})
	if err != nil {
		return &codedError{code: exitUsage, err: err}
	}
	at, failed, stop, err := serveUpstream(u, c.Listen)
	if err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()
	fmt.Fprintf(std.out, "serving at http://%s, each request for %v on average\n", at, c.Hold)
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tell(std.out, u)
		case err := <-failed:
			return err
		case <-ctx.Done():
			tell(std.out, u)
			return stop()
		}
	}
}

func tell(out io.Writer, u *demo.Upstream) {
	s := u.Stats()
	fmt.Fprintf(out, "%d in flight, most %d, %d served, %d aborted\n", s.InFlight, s.Max, s.Served, s.Aborted)
}

// demoLoadCommand runs the clients alone.
type demoLoadCommand struct {
	Duration time.Duration `name:"duration" default:"20s" help:"How long to run (default ${default})."`
	Clients  int           `name:"clients" default:"30" help:"Closed-loop clients for each URL without a number (default ${default})."`
	Targets  []string      `arg:"" name:"url" help:"Where to send requests: http://HOST:PORT/PATH, with =N at the end for N clients."`
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
		return &codedError{code: exitUsage, err: errors.New("--duration must be more than 0")}
	}
	cfg := demo.LoadConfig{Warmup: min(2*time.Second, c.Duration/4)}
	cfg.Duration = c.Duration - cfg.Warmup
	for _, t := range c.Targets {
		url, clients := t, c.Clients
		if i := strings.LastIndex(t, "="); i >= 0 {
			var err error
			if clients, err = strconv.Atoi(t[i+1:]); err != nil || clients < 1 {
				return &codedError{code: exitUsage, err: fmt.Errorf("%s: %q is not a number of clients", t, t[i+1:])}
			}
			url = t[:i]
		}
		cfg.Targets = append(cfg.Targets, demo.Target{Name: url, URL: url, Clients: clients})
	}
	if err := cfg.Validate(); err != nil {
		return &codedError{code: exitUsage, err: err}
	}
	ctx, cancel := untilSignal()
	defer cancel()
	r, err := demo.Run(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		return err
	}
	printLoad(std.out, r)
	switch failed := r.Overall.Errors(); {
	case r.Overall.Access.Count == 0:
		return &codedError{code: exitFailure, err: errors.New("no request was answered: does a gateway listen there?")}
	case failed > 0:
		return &codedError{code: exitFailure, err: fmt.Errorf("%d requests failed, by status (0: no answer): %v", failed, r.Overall.Failed)}
	}
	return nil
}
