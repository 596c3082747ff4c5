package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// Target is one address and the clients that ask there.
type Target struct {
	// Name in results; the URL if empty.
	Name string
	// URL to GET; http only.
	URL string
	// Clients, each with a connection of its own.
	Clients int
}

// LoadConfig of a Run.
type LoadConfig struct {
	Targets []Target
	// Warmup is the time before the measured window. It should exceed the longest wait, so that
	// the rush of all clients at the start is not measured.
	Warmup time.Duration
	// Duration of that window. Required.
	Duration time.Duration
	// Stop, when it is closed, ends the run before its time, in order.
	Stop <-chan struct{}
	// Drain is how long requests under way at the end may take to finish before they are
	// aborted; default 5 s. They are not measured.
	Drain time.Duration
	// Opened is called when the window opens, Closed when it closes, before
	// anything is aborted: the moments to reset and read an Upstream.
	Opened, Closed func()
}

// Validate returns the errors of c, joined.
func (c LoadConfig) Validate() error {
	var errs []error
	if len(c.Targets) == 0 {
		errs = append(errs, errors.New("demo: no target"))
	}
	for _, t := range c.Targets {
		if u, err := url.Parse(t.URL); err != nil || u.Scheme != "http" || u.Host == "" {
			errs = append(errs, fmt.Errorf("demo: target %q is not an http URL", t.URL))
		}
		if t.Clients < 0 {
			errs = append(errs, fmt.Errorf("demo: target %q has a negative number of clients", t.URL))
		}
	}
	if c.Duration <= 0 || c.Warmup < 0 {
		errs = append(errs, errors.New("demo: the duration is not positive, or the warm-up negative"))
	}
	return errors.Join(errs...)
}

// Run runs the clients until the window closes or ctx ends. When ctx ends early, it returns the
// result so far and ctx's error.
func Run(ctx context.Context, cfg LoadConfig) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &run{dials: make(chan struct{}, maxDials)}
	clientCtx, cut := context.WithCancel(ctx)
	defer cut()
	var clients sync.WaitGroup
	for _, t := range cfg.Targets {
		g, err := newGroup(t)
		if err != nil {
			return nil, err
		}
		r.groups = append(r.groups, g)
	}
	for i, g := range r.groups {
		for range cfg.Targets[i].Clients {
			clients.Go(func() { (&client{run: r, group: g}).loop(clientCtx) })
		}
	}
	elapsed, err := r.conduct(ctx, cfg)
	defer time.AfterFunc(cmp.Or(cfg.Drain, 5*time.Second), cut).Stop()
	clients.Wait()
	return r.result(elapsed), err
}

// conduct opens and closes the window, and returns its real length.
func (r *run) conduct(ctx context.Context, cfg LoadConfig) (time.Duration, error) {
	defer r.closed.Store(true)
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
		case <-cfg.Stop:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	if err := wait(cfg.Warmup); err != nil {
		return 0, err
	}
	if cfg.Opened != nil {
		cfg.Opened()
	}
	r.measuring.Store(true)
	opened := time.Now()
	err := wait(cfg.Duration)
	r.measuring.Store(false)
	elapsed := time.Since(opened)
	if cfg.Closed != nil {
		cfg.Closed()
	}
	return elapsed, err
}
