package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/kgate/kgate/lab/bar"
	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/report"
)

// experimentFlags are common to run and report.
type experimentFlags struct {
	Seeds    int             `name:"seeds" placeholder:"N" help:"Runs of each configuration (default: as the experiment says)."`
	Full     bool            `name:"full" help:"The large size: for the paper's figures its 100 trials of 2000 requests per node. Takes hours."`
	Parallel int             `name:"parallel" placeholder:"N" help:"Runs at once (default: one per processor). Results do not depend on it."`
	Latency  network.Latency `name:"latency" placeholder:"MODEL" help:"One-way delays: constant:5ms, jitter:5ms,1ms, clustered (a made-up WAN), king:FILE (measured, p2psim format)."`
}

func (f *experimentFlags) Validate() error {
	if f.Seeds < 0 || f.Parallel < 0 {
		return errors.New("--seeds and --parallel cannot be negative")
	}
	return nil
}

func (f *experimentFlags) options(b *bar.Bar) experiment.Options {
	return experiment.Options{Seeds: f.Seeds, Full: f.Full, Latency: f.Latency, Parallel: f.Parallel, Progress: b.Update}
}

type runCommand struct {
	Name string `arg:"" help:"An experiment of kgate-lab list."`
	Out  string `name:"out" type:"path" placeholder:"DIR" help:"Folder for NAME.csv, and a plot NAME-1.svg, NAME-2.svg, ... of each figure."`
	experimentFlags
}

func (runCommand) Help() string {
	return `Prints the table (means over the seeds, +- half of the 95 % confidence interval)
and the claims that it is about.

Examples:
  kgate-lab run 003-fig3
  kgate-lab run scv --out figures
  kgate-lab run 003-fig2 --latency king:king128.top --seeds 10

Exit codes: 0 done, 1 it could not run, 2 wrong command line.`
}

func (c *runCommand) Run(std streams) error {
	e, err := experiment.Find(c.Name)
	if err != nil {
		return usageError{err}
	}
	results, err := c.measure(std, []*experiment.Experiment{e})
	if err != nil {
		return err
	}
	result := results[0]
	if err := printTable(std.out, result.Table); err != nil {
		return err
	}
	printClaims(std.out, result.Claims)
	if c.Out == "" {
		return nil
	}
	files, err := report.WriteFiles(c.Out, result)
	for _, f := range files {
		fmt.Fprintln(std.out, "wrote", filepath.Join(c.Out, f))
	}
	return err
}

func printTable(out io.Writer, t *experiment.Table) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, strings.Join(t.Keys, "\t"))
	for _, f := range t.Figures {
		fmt.Fprint(w, "\t", f.Name)
	}
	fmt.Fprintln(w, "\t")
	for _, row := range t.Rows {
		fmt.Fprint(w, strings.Join(row.Keys, "\t"))
		for _, v := range row.Values {
			fmt.Fprint(w, "\t", interval(v))
		}
		fmt.Fprintln(w, "\t")
	}
	return w.Flush()
}

func interval(v meter.Interval) string {
	if math.IsNaN(v.Half) || v.Half == 0 {
		return fmt.Sprintf("%.4g", v.Mean)
	}
	return fmt.Sprintf("%.4g ±%.2g", v.Mean, v.Half)
}

// printClaims prints the table of claims, and below it why a claim does not agree.
func printClaims(out io.Writer, claims []experiment.Judged) {
	if len(claims) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", experiment.Markdown(claims))
	for _, c := range claims {
		if c.Verdict != experiment.Agrees && c.Why != "" {
			fmt.Fprintf(out, "%s: %s, %s, %s: %s.\n", c.Verdict, c.Paper, c.Place, c.Says, c.Why)
		}
	}
}
