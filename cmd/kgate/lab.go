package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/lab/experiment"
)

// labCommand is the simulator.
type labCommand struct {
	List   labListCommand   `cmd:"" help:"List the experiments."`
	Run    labRunCommand    `cmd:"" help:"Run an experiment: table, plot, findings."`
	Report labReportCommand `cmd:"" help:"Run all of them and write one HTML page."`
	Plan   labPlanCommand   `cmd:"" help:"Predict how long requests wait with a k, or find the k for a wait."`
	Fuzz   labFuzzCommand   `cmd:"" help:"Put simulated clusters through every fault and judge them."`
	Replay labReplayCommand `cmd:"" help:"Run one seed of the fuzz again."`
}

func (labCommand) Help() string {
	return `A deterministic simulator drives the machines that kgate ships, in virtual time,
beside the protocols it is compared with. The same seed gives the same result.`
}

type latencyFlag struct {
	Latency string `name:"latency" placeholder:"MODEL" help:"One-way delays: constant:5ms, jitter:5ms,1ms, clustered (a made-up WAN), king:FILE (measured, p2psim format)."`
	model   experiment.Latency
}

// AfterApply reads the flag.
func (f *latencyFlag) AfterApply() (err error) {
	f.model, err = experiment.ParseLatency(f.Latency)
	return err
}

// bar shows the progress of long work on a terminal; without a terminal it does nothing.
type bar struct {
	line  *statusLine
	what  string
	mu    sync.Mutex
	begun time.Time
	last  time.Time
}

func newBar(std streams, what string) *bar {
	return &bar{line: newStatusLine(std), what: what, begun: time.Now()}
}

// begin starts over with other work.
func (b *bar) begin(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.begun, b.last = what, time.Now(), time.Time{}
}

// during updates one of several pieces of work, each of which begins when the one before
// has ended.
func (b *bar) during(what string, done, total int) {
	b.mu.Lock()
	other := what != b.what
	b.mu.Unlock()
	if other {
		b.close()
		b.begin(what)
	}
	b.update(done, total)
}

// update is safe for concurrent use.
func (b *bar) update(done, total int) {
	const every, width = 100 * time.Millisecond, 30
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.line.out == nil || now.Sub(b.last) < every {
		return
	}
	b.last = now
	full := width * done / max(total, 1)
	left := time.Duration(float64(now.Sub(b.begun)) / float64(max(done, 1)) * float64(total-done)).Round(time.Second)
	b.line.show(fmt.Sprintf("%s  %s%s  %d/%d, %v left", b.what, strings.Repeat("█", full), strings.Repeat("░", width-full), done, total, left))
}

// close takes the bar off the terminal.
func (b *bar) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line.end()
}
