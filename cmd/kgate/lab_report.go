package main

import (
	"fmt"
	"path/filepath"

	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/report"
)

// labReportCommand runs all experiments and writes a page.
type labReportCommand struct {
	Names []string `arg:"" optional:"" help:"Experiments of kgate lab list (default: all)."`
	Out   string   `name:"out" required:"" type:"path" placeholder:"DIR" help:"Folder for index.html, and a table and plots of each experiment."`
	experimentFlags
}

func (labReportCommand) Help() string {
	return `One page with every figure beside the paper's numbers. It needs no network and no
script, and can be read on a phone.

Examples:
  kgate lab report --out report
  kgate lab report --out report 003-fig2 003-fig3 scv
  kgate lab report --out report --full             # the paper's sizes: takes hours

Exit codes: 0 done, 1 it could not run, 2 wrong command line.`
}

func (c *labReportCommand) Run(std streams) error {
	experiments := experiment.All()
	if len(c.Names) > 0 {
		experiments = nil
	}
	for _, name := range c.Names {
		e, err := experiment.Find(name)
		if err != nil {
			return &codedError{code: exitUsage, err: err}
		}
		experiments = append(experiments, e)
	}
	ctx, cancel := untilSignal()
	defer cancel()
	b := newBar(std, "")
	runner := experiment.NewRunner(c.options(b))
	var results []*experiment.Result
	for _, e := range experiments {
		b.begin(e.Name)
		result, err := runner.Run(ctx, e)
		b.close()
		if err != nil {
			return err
		}
		fmt.Fprintln(std.out, result.Finding)
		results = append(results, result)
	}
	v, _ := buildVersion()
	if err := report.WriteReport(c.Out, c.command(), v, results); err != nil {
		return err
	}
	fmt.Fprintln(std.out, "wrote", filepath.Join(c.Out, "index.html"))
	return nil
}

// command is the command line that makes the page again.
func (c *labReportCommand) command() string {
	text := "kgate lab report"
	for _, name := range c.Names {
		text += " " + name
	}
	if c.Full {
		text += " --full"
	}
	if c.Seeds > 0 {
		text += fmt.Sprintf(" --seeds %d", c.Seeds)
	}
	if c.Latency != "" {
		text += " --latency " + c.Latency
	}
	return text + " --out DIR"
}
