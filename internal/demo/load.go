package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
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
	// Think is the time between an answer and the client's next request.
	Think Distribution
	// Seed of the think times.
	Seed uint64
	// Warmup is the time before the measured window. It should exceed the longest wait, so that
	// the rush of all clients at the start is not measured.
	Warmup time.Duration
	// Duration of that window. Required.
	Duration time.Duration
	// Stop, when it is closed, ends the run before its time, in order.
	Stop <-chan struct{}
	// Drain is how long requests under way at the end may take to finish
	// before they are aborted; default 5 s, negative none. They are not
	// measured.
	Drain time.Duration
	// Header is sent with every request.
	Header http.Header
	// Opened is called when the window opens, Closed when it closes, before
	// anything is aborted: the moments to reset and read an Upstream.
	Opened, Closed func()
	// Progress is called every ProgressEvery, default 1 s, until the window
	// closes.
	Progress      func(Progress)
	ProgressEvery time.Duration
}

func (c LoadConfig) withDefaults() LoadConfig {
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	c.ProgressEvery = cmp.Or(c.ProgressEvery, time.Second)
	return c
}

// Validate returns the errors of c, joined.
func (c LoadConfig) Validate() error {
	errs := []error{c.Think.Validate()}
	if len(c.Targets) == 0 {
		errs = append(errs, errors.New("demo: no target"))
	}
	for _, t := range c.Targets {
		u, err := url.Parse(t.URL)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("demo: target: %w", err))
		case u.Scheme != "http" || u.Host == "":
			errs = append(errs, fmt.Errorf("demo: target %q is not an http URL", t.URL))
		}
		if t.Clients < 0 {
			errs = append(errs, fmt.Errorf("demo: target %q has a negative number of clients", t.URL))
		}
	}
	if c.Duration <= 0 {
		errs = append(errs, errors.New("demo: the duration is not positive"))
	}
	if c.Warmup < 0 || c.ProgressEvery < 0 {
		errs = append(errs, errors.New("demo: negative time"))
	}
	return errors.Join(errs...)
}

// Progress of a Run.
type Progress struct {
	// Elapsed since the start, warm-up included; Measuring once it is over.
	Elapsed   time.Duration
	Measuring bool
	// Targets in the order of the configuration.
	Targets []TargetProgress
}

// TargetProgress of one target, since the start.
type TargetProgress struct {
	Name string
	// Waiting is how many clients wait for an answer.
	Waiting int
	// Completed requests with status 2xx, and Failed ones.
	Completed, Failed int64
	// MeanAccess is the mean access time of the requests completed since the last call; 0 if
	// there were none.
	MeanAccess time.Duration
}

// phases of a run.
const (
	phaseWarmup int32 = iota
	phaseMeasure
	phaseClosed
)

// run is the state that the clients of one Run share.
type run struct {
	cfg    LoadConfig
	think  *sampler
	phase  atomic.Int32
	closed chan struct{} // when the window has closed
	dials  chan struct{} // bounds how many connect at once: listen queues are short
	groups []*group
}

// group is one target and its clients' counts.
type group struct {
	name    string
	addr    string
	request []byte // the same every time
	clients int

	waiting   atomic.Int64
	completed atomic.Int64
	failed    atomic.Int64
	accessSum atomic.Int64 // nanoseconds

	mu      sync.Mutex
	samples samples
}

// Run runs the clients until the window closes or ctx ends. When ctx ends early, it returns the
// result so far and ctx's error.
func Run(ctx context.Context, cfg LoadConfig) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r := &run{cfg: cfg, think: newSampler(cfg.Think, cfg.Seed), closed: make(chan struct{}), dials: make(chan struct{}, maxDials)}
	for _, t := range cfg.Targets {
		g, err := newGroup(t, cfg.Header)
		if err != nil {
			return nil, err
		}
		r.groups = append(r.groups, g)
	}

	clientCtx, cut := context.WithCancel(ctx)
	defer cut()
	var clients sync.WaitGroup
	for _, g := range r.groups {
		for range g.clients {
			clients.Go(func() { newClient(r, g).loop(clientCtx) })
		}
	}
	elapsed, err := r.conduct(ctx)

	finished := make(chan struct{})
	go func() { clients.Wait(); close(finished) }()
	if cfg.Drain > 0 && err == nil {
		timer := time.NewTimer(cfg.Drain)
		defer timer.Stop()
		select {
		case <-finished:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	cut()
	<-finished
	return r.result(elapsed), err
}

// conduct opens and closes the window and reports progress. It returns the
// window's real length.
func (r *run) conduct(ctx context.Context) (time.Duration, error) {
	defer close(r.closed)
	start := time.Now()
	ticker := time.NewTicker(r.cfg.ProgressEvery)
	defer ticker.Stop()
	progress := newProgressReporter(r, start)

	err := r.wait(ctx, start.Add(r.cfg.Warmup), ticker.C, progress.report)
	if err != nil {
		r.phase.Store(phaseClosed)
		return 0, err
	}
	if r.cfg.Opened != nil {
		r.cfg.Opened()
	}
	r.phase.Store(phaseMeasure)
	opened := time.Now()
	err = r.wait(ctx, opened.Add(r.cfg.Duration), ticker.C, progress.report)
	r.phase.Store(phaseClosed)
	elapsed := time.Since(opened)
	if r.cfg.Closed != nil {
		r.cfg.Closed()
	}
	return elapsed, err
}

// wait returns at t, or before when the run is stopped, or with ctx's error when that ends.
func (r *run) wait(ctx context.Context, t time.Time, ticks <-chan time.Time, report func()) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	for {
		select {
		case <-ticks:
			report()
		case <-timer.C:
			return ctx.Err()
		case <-r.cfg.Stop:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// progressReporter turns the groups' counts into Progress.
type progressReporter struct {
	run       *run
	start     time.Time
	completed []int64
	accessSum []int64
}

func newProgressReporter(r *run, start time.Time) *progressReporter {
	return &progressReporter{
		run:       r,
		start:     start,
		completed: make([]int64, len(r.groups)),
		accessSum: make([]int64, len(r.groups)),
	}
}

func (p *progressReporter) report() {
	if p.run.cfg.Progress == nil {
		return
	}
	out := Progress{
		Elapsed:   time.Since(p.start),
		Measuring: p.run.phase.Load() == phaseMeasure,
		Targets:   make([]TargetProgress, len(p.run.groups)),
	}
	for i, g := range p.run.groups {
		completed, sum := g.completed.Load(), g.accessSum.Load()
		t := TargetProgress{
			Name:      g.name,
			Waiting:   int(g.waiting.Load()),
			Completed: completed,
			Failed:    g.failed.Load(),
		}
		if n := completed - p.completed[i]; n > 0 {
			t.MeanAccess = time.Duration((sum - p.accessSum[i]) / n)
		}
		p.completed[i], p.accessSum[i] = completed, sum
		out.Targets[i] = t
	}
	p.run.cfg.Progress(out)
}
