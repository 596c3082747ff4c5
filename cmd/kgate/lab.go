package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kgate/kgate/lab/experiment"
)

// labCommand is the simulator.
type labCommand struct {
	List   labListCommand   `cmd:"" help:"List the experiments."`
	Run    labRunCommand    `cmd:"" help:"Run an experiment: table, plot, findings."`
	Report labReportCommand `cmd:"" help:"Run all of them and write one HTML page."`
	Plan   labPlanCommand   `cmd:"" help:"How long requests will wait with a k, and which k it takes."`
	Fuzz   labFuzzCommand   `cmd:"" help:"Let simulated clusters go through every fault and judge them."`
	Replay labReplayCommand `cmd:"" help:"Play one seed of the fuzz again."`
}

// Help implements kong.HelpProvider.
func (labCommand) Help() string {
	return `A deterministic simulator drives the machines that kgate ships, in virtual time,
beside the protocols it is compared with. The same seed gives the same result.`
}

// latencyFlag is --latency.
type latencyFlag struct {
	Latency string `name:"latency" placeholder:"MODEL" help:"One-way delays: constant:5ms, jitter:5ms,1ms, clustered (a made-up WAN), king:FILE (measured, p2psim format)."`
	model   experiment.Latency
}

// AfterApply reads the flag.
func (f *latencyFlag) AfterApply() (err error) {
	f.model, err = experiment.ParseLatency(f.Latency)
	return err
}

// bar shows on a terminal how far a longer work is; elsewhere nothing.
type bar struct {
	out   io.Writer
	what  string
	mu    sync.Mutex
	begun time.Time
	last  time.Time
	drawn bool
}

func newBar(out io.Writer, what string) *bar {
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		out = nil
	}
	return &bar{out: out, what: what, begun: time.Now()}
}

// begin starts over with another work.
func (b *bar) begin(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.begun, b.last, b.drawn = what, time.Now(), time.Time{}, false
}

// during is update of one of several works, of which the next begins when the last
// one has ended.
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
	if b.out == nil || now.Sub(b.last) < every {
		return
	}
	b.last, b.drawn = now, true
	full := width * done / max(total, 1)
	left := time.Duration(float64(now.Sub(b.begun)) / float64(max(done, 1)) * float64(total-done)).Round(time.Second)
	fmt.Fprintf(b.out, "\r\x1b[K%s  %s%s  %d/%d, %v left", b.what, strings.Repeat("█", full), strings.Repeat("░", width-full), done, total, left)
}

// close takes the bar off the terminal.
func (b *bar) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
