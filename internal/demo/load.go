package demo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Target is one address and the clients that ask there.
type Target struct {
	// Name in results.
	Name string
	// URL to GET; http only.
	URL string
	// Clients, each with a connection of its own.
	Clients int
	// Rate is how many requests they send per second, evenly spread, whether answers come or not;
	// 0: each asks again when it has an answer.
	Rate float64
}

// LoadConfig of a Run.
type LoadConfig struct {
	Targets []Target
	// Warmup is the time before the measured window. It should exceed the longest wait, so that
	// the rush of all clients at the start is not measured.
	Warmup time.Duration
	// Duration of that window.
	Duration time.Duration
	// Stop, when it is closed, ends the run before its time, in order.
	Stop <-chan struct{}
	// Drain is how long requests under way at the end may take to finish before they are
	// aborted; default 5 s. They are not measured.
	Drain time.Duration
	// Opened is called when the window opens, Closed when it closes, before
	// anything is aborted: the moments to read an Upstream.
	Opened, Closed func()
}

// Result of a Run.
type Result struct {
	// Targets in the order of the configuration.
	Targets []Summary
	// Overall is over all targets together.
	Overall Summary
}

// Summary of the answers that arrived within the window.
type Summary struct {
	Name string
	// Count of answers with status 2xx, how many of them came per second, and their access times.
	Count               int
	PerSecond           float64
	Mean, P50, P99, Max time.Duration
	// Errors counts the other answers, Failed by status; status 0 is no answer.
	Errors int
	Failed map[int]int
}

// Spread is the longest access time minus the mean, the papers' measure of unfairness.
func (s Summary) Spread() time.Duration { return s.Max - s.Mean }

// Run runs the clients until the window closes or ctx ends, and returns what they saw until then. The
// error says what is wrong with a target.
func Run(ctx context.Context, cfg LoadConfig) (*Result, error) {
	asking, cut := context.WithCancel(ctx)
	defer cut()
	groups, all := make([][]*client, len(cfg.Targets)), []*client(nil)
	for i, t := range cfg.Targets {
		req, err := http.NewRequest(http.MethodGet, t.URL, http.NoBody)
		if err != nil || req.URL.Scheme != "http" || req.URL.Host == "" {
			return nil, fmt.Errorf("demo: target %q is not an http URL", t.URL)
		}
		var raw bytes.Buffer
		if err := req.Write(&raw); err != nil {
			return nil, fmt.Errorf("demo: target %q: %w", t.URL, err)
		}
		addr := net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), "80"))
		for n := range t.Clients {
			c := &client{addr: addr, request: raw.Bytes(), failed: make(map[int]int)}
			if t.Rate > 0 {
				c.every = time.Duration(float64(t.Clients) / t.Rate * float64(time.Second))
				c.due = time.Now().Add(c.every * time.Duration(n) / time.Duration(t.Clients))
			}
			groups[i] = append(groups[i], c)
		}
		all = append(all, groups[i]...)
	}
	var w window
	var clients sync.WaitGroup
	for _, c := range all {
		clients.Go(func() { c.loop(asking, &w) })
	}
	elapsed := w.conduct(ctx, cfg)
	defer time.AfterFunc(cmp.Or(cfg.Drain, 5*time.Second), cut).Stop()
	clients.Wait()
	res := &Result{Overall: summarize("overall", all, elapsed)}
	for i, t := range cfg.Targets {
		res.Targets = append(res.Targets, summarize(t.Name, groups[i], elapsed))
	}
	return res, nil
}

// conduct opens and closes the window, and returns its real length.
func (w *window) conduct(ctx context.Context, cfg LoadConfig) (elapsed time.Duration) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-cfg.Stop:
		case <-ctx.Done():
		}
	}
	wait(cfg.Warmup)
	if cfg.Opened != nil {
		cfg.Opened()
	}
	w.open.Store(true)
	opened := time.Now()
	wait(cfg.Duration)
	w.open.Store(false)
	w.closed.Store(true)
	elapsed = time.Since(opened)
	if cfg.Closed != nil {
		cfg.Closed()
	}
	return elapsed
}

// summarize what clients saw that have ended.
func summarize(name string, clients []*client, elapsed time.Duration) Summary {
	s := Summary{Name: name, Failed: make(map[int]int)}
	var waits []time.Duration
	for _, c := range clients {
		waits = append(waits, c.waits...)
		for status, n := range c.failed {
			s.Failed[status] += n
			s.Errors += n
		}
	}
	if s.Count = len(waits); s.Count == 0 {
		return s
	}
	slices.Sort(waits)
	var sum time.Duration
	for _, d := range waits {
		sum += d
	}
	// The nearest rank: the smallest time that half of the sample, or 99 percent, do not exceed.
	s.P50, s.P99, s.Max = waits[(s.Count-1)/2], waits[(99*s.Count-1)/100], waits[s.Count-1]
	s.Mean, s.PerSecond = sum/time.Duration(s.Count), float64(s.Count)/elapsed.Seconds()
	return s
}
