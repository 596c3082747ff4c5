package experiment

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
)

// Options say how experiments are run.
type Options struct {
	// Seeds per configuration; 0: as the experiment's size says.
	Seeds int
	// Full takes the large size.
	Full bool
	// Latency replaces the network, where the experiment is not about that.
	Latency network.Latency
	// Parallel is how many runs go on at once; 0: one per processor.
	Parallel int
	// Progress is told how many of an experiment's runs are done, from any goroutine.
	Progress func(what string, done, total int)
}

// Runner runs experiments. Those that look at the same runs have them made once.
// It is not safe for concurrent use.
type Runner struct {
	opt  Options
	done map[string]*Table
}

// NewRunner returns a runner.
func NewRunner(opt Options) *Runner {
	if opt.Parallel < 1 {
		opt.Parallel = runtime.GOMAXPROCS(0)
	}
	return &Runner{opt: opt, done: make(map[string]*Table)}
}

// Result is what an experiment has found.
type Result struct {
	Experiment *Experiment
	Size       Size
	Latency    string
	Table      *Table
	Claims     []Judged
}

// Run runs an experiment.
func (r *Runner) Run(ctx context.Context, e *Experiment) (*Result, error) {
	s := setting{Size: e.Quick, Full: r.opt.Full, Latency: r.opt.Latency}
	if s.Full {
		s.Size = e.Full
	}
	if r.opt.Seeds > 0 {
		s.Seeds = r.opt.Seeds
	}
	d, err := e.design(s)
	if err != nil {
		return nil, fmt.Errorf("experiment: %s: %w", e.Name, err)
	}
	table := r.done[d.name]
	if table == nil {
		if table, err = r.table(ctx, d, s.Seeds); err != nil {
			return nil, fmt.Errorf("experiment: %s: %w", e.Name, err)
		}
		r.done[d.name] = table
	}
	result := &Result{Experiment: e, Size: s.Size, Latency: s.Latency.String(), Table: table}
	for _, c := range e.Claims {
		result.Claims = append(result.Claims, c.judge(table))
	}
	return result, nil
}

// table carries out the runs of a design.
func (r *Runner) table(ctx context.Context, d *design, seeds int) (*Table, error) {
	runs := make([][][]float64, len(d.cells)*seeds) // by cell and seed: rows of figures
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.opt.Parallel)
	for i := range runs {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c, seed := &d.cells[i/seeds], i%seeds+1
			if runs[i], err = c.measure(uint64(seed)); err != nil {
				return fmt.Errorf("%v, seed %d: %w", c.rows[0], seed, err)
			}
			if r.opt.Progress != nil {
				r.opt.Progress(d.name, int(done.Add(1)), len(runs))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return d.combine(runs, seeds), nil
}

// combine puts the runs together.
func (d *design) combine(runs [][][]float64, seeds int) *Table {
	t := &Table{Keys: d.keys, Figures: d.figures}
	for c := range d.cells {
		for row, keys := range d.cells[c].rows {
			values := make([]meter.Interval, len(d.figures))
			for f := range values {
				sample := make([]float64, seeds)
				for seed := range sample {
					sample[seed] = runs[c*seeds+seed][row][f]
				}
				values[f] = meter.Confidence(sample)
			}
			t.Rows = append(t.Rows, Row{Keys: keys, Values: values})
		}
	}
	return t
}
