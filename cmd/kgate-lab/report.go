package main

import (
	"fmt"
	"path/filepath"
	"runtime/debug"

	"github.com/kgate/kgate/lab/bar"
	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/report"
)

// reportCommand runs all experiments and writes a page.
type reportCommand struct {
	Names []string `arg:"" optional:"" help:"Experiments of kgate-lab list (default: all)."`
	Out   string   `name:"out" required:"" type:"path" placeholder:"DIR" help:"Folder for index.html, and a table and plots of each experiment."`
	experimentFlags
}

func (reportCommand) Help() string {
	return `One page with every figure beside the paper's numbers. It needs no network and no
script, and can be read on a phone.

Examples:
  kgate-lab report --out report
  kgate-lab report --out report 003-fig2 003-fig3 scv
  kgate-lab report --out report --full             # the paper's sizes: takes hours

Exit codes: 0 done, 1 it could not run, 2 wrong command line.`
}

func (c *reportCommand) Run(std streams) error {
	experiments, err := named(c.Names)
	if err != nil {
		return err
	}
	results, err := c.measure(std, experiments)
	if err != nil {
		return err
	}
	if err := report.WriteReport(c.Out, c.command(), version(), results); err != nil {
		return err
	}
	fmt.Fprintln(std.out, "wrote", filepath.Join(c.Out, "index.html"))
	return nil
}

// named returns the experiments of these names, or all.
func named(names []string) ([]*experiment.Experiment, error) {
	if len(names) == 0 {
		return experiment.All(), nil
	}
	var some []*experiment.Experiment
	for _, name := range names {
		e, err := experiment.Find(name)
		if err != nil {
			return nil, usageError{err}
		}
		some = append(some, e)
	}
	return some, nil
}

// measure runs experiments, one after the other.
func (f *experimentFlags) measure(std streams, experiments []*experiment.Experiment) ([]*experiment.Result, error) {
	ctx, cancel := untilSignal()
	defer cancel()
	b := bar.New(std.err)
	defer b.Close()
	runner := experiment.NewRunner(f.options(b))
	var results []*experiment.Result
	for _, e := range experiments {
		result, err := runner.Run(ctx, e)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// command returns the command line that makes the page again.
func (c *reportCommand) command() string {
	text := "kgate-lab report"
	for _, name := range c.Names {
		text += " " + name
	}
	if c.Full {
		text += " --full"
	}
	if c.Seeds > 0 {
		text += fmt.Sprintf(" --seeds %d", c.Seeds)
	}
	if l := c.Latency.String(); l != "" {
		text += " --latency " + l
	}
	return text + " --out DIR"
}

// version returns the revision that this program was built from, if known.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "dev"
}
