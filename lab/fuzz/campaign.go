package fuzz

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Campaign plays many seeds.
type Campaign struct {
	// First seed, and how many from there on, each in both modes.
	First, Seeds uint64
	// Budget is when no further seed is begun; 0: never.
	Budget time.Duration
	// Parallel is how many are played at once (default 1).
	Parallel int
	// Findings after which no further seed is begun (default 5).
	Findings int
	// Mode, if not both.
	Mode Mode
	// Progress is told how many seeds are done; it may be nil.
	Progress func(done uint64)
}

// Finding is a seed that failed.
type Finding struct {
	Scenario *Scenario
	Err      error
}

// Report is what a campaign has shown.
type Report struct {
	// Seeds played, runs made (one or two per seed).
	Seeds, Runs uint64
	Served      int
	Events      uint64
	Epochs      uint64
	// Apart is the most that paused processes had open beyond their leases.
	Apart int
	// Findings in order of seeds.
	Findings []Finding
}

const defaultFindings = 5

// Run plays the seeds. Which ones are played depends on the budget; what each shows
// does not.
func (c Campaign) Run(ctx context.Context) *Report {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next = c.First
		rep  Report
	)
	if c.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Budget)
		defer cancel()
	}
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next >= c.First+c.Seeds || ctx.Err() != nil || len(rep.Findings) >= cmp.Or(c.Findings, defaultFindings) {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range max(c.Parallel, 1) {
		wg.Go(func() {
			for {
				seed, more := take()
				if !more {
					return
				}
				one := c.seed(seed)
				mu.Lock()
				rep.add(one)
				if c.Progress != nil {
					c.Progress(rep.Seeds)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(rep.Findings, func(a, b Finding) int { return cmp.Compare(a.Scenario.Seed, b.Scenario.Seed) })
	return &rep
}

// seed plays one seed.
func (c Campaign) seed(seed uint64) *Report {
	rep := &Report{Seeds: 1}
	for _, mode := range []Mode{Safety, Liveness} {
		if c.Mode != "" && c.Mode != mode {
			continue
		}
		s := New(seed, mode)
		r, err := Run(s, nil)
		rep.Runs++
		rep.Served += r.Served
		rep.Events += r.Events
		rep.Epochs += r.Epochs
		rep.Apart = max(rep.Apart, r.Apart)
		if err != nil {
			rep.Findings = append(rep.Findings, Finding{s, err})
			break
		}
	}
	return rep
}

func (r *Report) add(o *Report) {
	r.Seeds += o.Seeds
	r.Runs += o.Runs
	r.Served += o.Served
	r.Events += o.Events
	r.Epochs += o.Epochs
	r.Apart = max(r.Apart, o.Apart)
	r.Findings = append(r.Findings, o.Findings...)
}
