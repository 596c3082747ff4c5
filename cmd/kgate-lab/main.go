// Kgate-lab is kgate's simulator: it reproduces the papers, compares protocols and finds faults.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command could not run, or a seed failed
	exitUsage   = 2 // the command line is wrong
)

// commands is the command line. Of each command kong calls Validate and Run, and Help for --help.
type commands struct {
	Claims claimsCommand `cmd:"" help:"Measure what the papers claim, and judge each claim."`
	List   listCommand   `cmd:"" help:"List the experiments."`
	Run    runCommand    `cmd:"" help:"Run an experiment: table, plots, claims."`
	Report reportCommand `cmd:"" help:"Run all of them and write one HTML page."`
	Fuzz   fuzzCommand   `cmd:"" help:"Put simulated clusters through every fault and judge them."`
	Replay replayCommand `cmd:"" help:"Run one seed of the fuzz again."`
}

// streams are what a command reads and writes.
type streams struct{ out, err io.Writer }

// usageError is a fault of the command line that only Run can find.
type usageError struct{ error }

// errFailed ends the process with exitFailure. The failure has been printed.
var errFailed = errors.New("failed")

// untilSignal returns a context that ends with SIGINT or SIGTERM.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

func main() {
	if os.Getenv("GOGC") == "" { // a world is small, and collecting its garbage takes a third of the time
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(1 << 30)
	}
	os.Exit(run(os.Args[1:], streams{os.Stdout, os.Stderr}))
}

// run carries out a command line and returns the exit code.
func run(args []string, std streams) int {
	exit := -1
	parser, err := kong.New(new(commands),
		kong.Name("kgate-lab"),
		kong.Description("A deterministic simulator: kgate's own state machines in virtual time, beside the protocols they are compared with. The same seed gives the same result."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)
	if err != nil {
		fmt.Fprintln(std.err, "kgate-lab:", err)
		return exitFailure
	}
	command, err := parser.Parse(args)
	switch {
	case exit >= 0: // --help
		return exit
	case err != nil:
		fmt.Fprintf(std.err, "kgate-lab: %v\nTry: kgate-lab --help\n", err)
		return exitUsage
	}
	err = command.Run(std)
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(std.err, "kgate-lab:", err)
	}
	switch usage := (usageError{}); {
	case errors.As(err, &usage):
		return exitUsage
	case err != nil:
		return exitFailure
	}
	return exitOK
}
