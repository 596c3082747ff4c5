package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/kgate/kgate/lab/bar"
	"github.com/kgate/kgate/lab/fuzz"
)

type fuzzCommand struct {
	Seeds    uint64        `name:"seeds" default:"1000" help:"How many seeds to run."`
	First    uint64        `name:"first" default:"0" help:"The first of them."`
	Budget   time.Duration `name:"budget" default:"120s" placeholder:"TIME" help:"Start no further seed after this time."`
	Parallel int           `name:"parallel" placeholder:"N" help:"How many to run at once (default: one per processor)."`
	Mode     string        `name:"mode" default:"both" enum:"both,safety,liveness" help:"both, safety or liveness."`
}

func (fuzzCommand) Help() string {
	return `Each seed is a cluster of 1 to 9 gateways in virtual time, with requests and
faults: processes lost, paused and restarted, partitions of any shape, slow links,
wrong clocks, elections, wrong suspicions, joins, leaves, k changed,
upstreams that some cannot reach. In the mode
"safety" its upstream must never see more than k; in "liveness" all requests must
also be served when the faults are over.

A seed that fails is shrunk, and the command that runs it again is printed.

Examples:
  kgate-lab fuzz
  kgate-lab fuzz --seeds 100000 --budget 1h --first 5000

Exit codes: 0 all seeds passed, 1 one failed, or the budget was too small for all,
2 wrong command line.`
}

func (c *fuzzCommand) Validate() error {
	if c.Seeds < 1 || c.Budget <= 0 || c.Parallel < 0 {
		return errors.New("--seeds must be at least 1, --budget more than 0, and --parallel not negative")
	}
	return nil
}

func (c *fuzzCommand) Run(std streams) error {
	ctx, cancel := untilSignal()
	defer cancel()
	shown := bar.New(std.err)
	campaign := fuzz.Campaign{First: c.First, Seeds: c.Seeds, Budget: c.Budget, Parallel: c.Parallel, Progress: func(done uint64) { shown.Update("seeds", int(done), int(c.Seeds)) }}
	if c.Parallel == 0 {
		campaign.Parallel = runtime.GOMAXPROCS(0)
	}
	if c.Mode != "both" {
		campaign.Mode = fuzz.Mode(c.Mode)
	}
	began := time.Now()
	r := campaign.Run(ctx)
	shown.Close()
	fmt.Fprintf(std.out, "%d seeds, %d runs in %.1f s: %d requests served, %d epochs, %.1f million events\n",
		r.Seeds, r.Runs, time.Since(began).Seconds(), r.Served, r.Epochs, float64(r.Events)/1e6)
	for _, f := range r.Findings {
		printFinding(std.out, f)
	}
	switch {
	case len(r.Findings) > 0:
		return errFailed
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case r.Seeds < c.Seeds:
		return fmt.Errorf("%d of %d seeds within %v", r.Seeds, c.Seeds, c.Budget)
	}
	fmt.Fprintln(std.out, "all passed")
	return nil
}

// printFinding shrinks a failing seed and shows it.
func printFinding(out io.Writer, f fuzz.Finding) {
	const runs = 2000
	small, err := fuzz.Shrink(f.Scenario, f.Err, runs)
	fmt.Fprintf(out, "\nseed %d failed: %v\n", f.Scenario.Seed, firstLine(err))
	printScenario(out, small, len(f.Scenario.Ops))
	fmt.Fprintf(out, "  run it:   kgate-lab replay %s --trace\n", small.Args())
	fmt.Fprintf(out, "  whole:    kgate-lab replay %s\n", f.Scenario.Args())
}

func printScenario(out io.Writer, s *fuzz.Scenario, of int) {
	binding := "late"
	if s.Early {
		binding = "early"
	}
	fmt.Fprintf(out, "  %d hosts, %d of them in the view, k=%d, %s binding, delay %v + %v, %d of %d operations:\n",
		s.Hosts, s.Members, s.K, binding, s.Base, s.Extra, len(s.Ops), of)
	const most = 40
	for i, o := range s.Ops {
		if i == most {
			fmt.Fprintf(out, "    ... and %d more\n", len(s.Ops)-most)
			break
		}
		fmt.Fprintf(out, "    %v\n", o)
	}
}

// firstLine returns the first line of an error, without a stack.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// replayCommand runs one seed.
type replayCommand struct {
	Seed  uint64 `arg:"" help:"The seed."`
	Mode  string `name:"mode" default:"safety" enum:"safety,liveness" help:"safety or liveness."`
	Hosts int    `name:"hosts" placeholder:"N" help:"Only the first hosts of the scenario."`
	Keep  string `name:"keep" placeholder:"LIST" help:"Only these of its operations, like 0-3,7, or none."`
	Trace bool   `name:"trace" help:"Print all that happens."`
}

func (replayCommand) Help() string {
	return `The same seed and flags give the same run, and the same trace byte for byte.

Examples:
  kgate-lab replay 4711 --mode liveness
  kgate-lab replay 4711 --hosts 3 --keep 0-3,17 --trace

Exit codes: 0 it passed, 1 it failed, 2 wrong command line.`
}

func (c *replayCommand) Run(std streams) error {
	s := fuzz.New(c.Seed, fuzz.Mode(c.Mode))
	all := len(s.Ops)
	if c.Hosts < 0 || c.Hosts > s.Hosts {
		return usageError{fmt.Errorf("the scenario of seed %d has %d hosts", c.Seed, s.Hosts)}
	}
	if c.Hosts > 0 {
		s = s.WithHosts(c.Hosts)
	}
	if c.Keep != "" {
		ops, err := fuzz.ParseRanges(c.Keep)
		if err != nil {
			return usageError{err}
		}
		s = s.Keep(ops)
	}
	var trace io.Writer
	if c.Trace {
		trace = std.out
	} else {
		printScenario(std.out, s, all)
	}
	r, err := fuzz.Run(s, trace)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "passed: %d requests served, at most %d at the upstream, %d epochs, %d events\n", r.Served, r.Most, r.Epochs, r.Events)
	return nil
}
