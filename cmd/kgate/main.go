// Kgate is a fair k-mutual-exclusion admission gateway: an HTTP reverse proxy
// that runs on several peers and lets at most k requests into an upstream, over
// all peers together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line. Of each command kong calls Validate and Run, and Help for --help.
type commands struct {
	Serve       serveCommand      `cmd:"" help:"Run a gateway."`
	Demo        demoCommand       `cmd:"" help:"Run a demonstration on this machine: three gateways, a slow upstream, an uneven load."`
	Check       checkCommand      `cmd:"" help:"Validate a configuration file: every error at once."`
	Status      statusCommand     `cmd:"" help:"Show a running gateway and its cluster."`
	Pool        poolCommand       `cmd:"" help:"Show the pools, or change one in the whole cluster."`
	Members     membersCommand    `cmd:"" help:"Show the gateways of the cluster."`
	Upstreams   upstreamsCommand  `cmd:"" help:"Show the upstreams of the pools."`
	Reload      reloadCommand     `cmd:"" help:"Have a gateway read its configuration file again."`
	Drain       drainCommand      `cmd:"" help:"Take a gateway out of service; it stays in the cluster."`
	Leave       leaveCommand      `cmd:"" help:"Shut a gateway down in order, or remove a lost one by force."`
	Exec        execCommand       `cmd:"" help:"Hold one slot while a command runs."`
	Plan        planCommand       `cmd:"" help:"Predict how long requests wait with a k, or find the k for a wait."`
	Keygen      keygenCommand     `cmd:"" help:"Make the keys and certificates that protect a cluster."`
	Version     versionCommand    `cmd:"" help:"Print the version."`
	ShowVersion versionFlag       `name:"version" help:"Print the version."`
	Completion  completionCommand `cmd:"" help:"Print the script with which a shell completes command lines."`
	Complete    completeCommand   `cmd:"" hidden:""`
	Guard       guardCommand      `cmd:"" hidden:"" name:"exec-guard"`
	Manual      manualCommand     `cmd:"" hidden:"" help:"Write the manual pages."`
}

// streams are what a command reads and writes.
type streams struct{ out, err io.Writer }

// untilSignal returns a context that ends with SIGINT or SIGTERM.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

func main() {
	os.Exit(run(os.Args[1:], streams{os.Stdout, os.Stderr}))
}

// run carries out a command line and returns the exit code.
func run(args []string, std streams) int {
	exit := -1
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	var cli commands
	parser, err := kong.New(&cli,
		kong.Name("kgate"),
		kong.Description("A fair admission gateway: at most k requests into an upstream, over all gateways together, in one line."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)
	if err != nil {
		fmt.Fprintln(std.err, "kgate:", err)
		return exitFailure
	}
	misspelt := misspeltVariables(os.Environ(), parser.Model.Node)
	command, err := parser.Parse(args)
	switch {
	case exit >= 0: // --help
		return exit
	case err != nil:
		at := parser.Model.Node
		if p := (*kong.ParseError)(nil); errors.As(err, &p) && p.Context.Selected() != nil {
			at = p.Context.Selected()
		}
		return misused(std, at, plain(err))
	}
	if name := emptyFlag(command); name != "" {
		return misused(std, command.Selected(), "--"+name+" needs a value")
	}
	if command.Command() != "serve" { // which has a log
		for _, text := range misspelt {
			fmt.Fprintln(std.err, "kgate:", text)
		}
	}
	if err := command.Run(std, misspelt); err != nil {
		var coded *codedError
		if errors.As(err, &coded) {
			switch {
			case coded.err == nil:
			case coded.code == exitUsage:
				return misused(std, command.Selected(), coded.err.Error())
			default:
				fmt.Fprintln(std.err, "kgate:", coded.err)
			}
			return coded.code
		}
		fmt.Fprintln(std.err, "kgate:", strings.TrimPrefix(err.Error(), "kgate: ")) // as the library begins its errors
		return exitFailure
	}
	return exitOK
}

// emptyFlag returns the name of a flag with an empty value on the command line, as from a script with an
// unset variable: the command would not do what the script means.
func emptyFlag(command *kong.Context) string {
	for _, p := range command.Path {
		if p.Flag != nil && p.Flag.Target.Kind() == reflect.String && p.Flag.Target.IsZero() {
			return p.Flag.Name
		}
	}
	return ""
}

// misused prints the fault of a command line, and how to get its help.
func misused(std streams, at *kong.Node, wrong string) int {
	fmt.Fprintf(std.err, "kgate: %s\nTry: %s --help\n", wrong, commandName(at))
	return exitUsage
}

// plainly rewrites errors of kong that use its own terms.
var plainly = []struct {
	text *regexp.Regexp
	is   string
}{
	{regexp.MustCompile(`^(--[a-z0-9-]+)[^:]*: expected .* value but got "EOL" .*`), "$1 needs a value"},
	{regexp.MustCompile(`^(--[a-z0-9-]+)[^:]*: expected .* value but got "(.*)" \(.* flag\).*`), "$1 needs a value; if that is $2, write $1=$2"},
	{regexp.MustCompile(`^(--[a-z0-9-]+): missing value, expecting .*`), "$1 needs a value"},
	{regexp.MustCompile(`^(--[a-z0-9-]+)[^:]*: expected a valid \d+ bit u?int but got (".*")`), "$1 $2: write a whole number"},
	{regexp.MustCompile(`^(--[a-z0-9-]+)[^:]*: expected a float but got (".*") .*`), "$1 $2: write a number"},
	{regexp.MustCompile(`^(--[a-z0-9-]+)[^:]*: expected duration but got (".*"): .*`), "$1 $2: write a number and a unit, such as 500ms, 60s or 5m"},
}

// plain describes the fault of a command line in words that need no knowledge of the parser.
func plain(err error) string {
	for _, p := range plainly {
		if p.text.MatchString(err.Error()) {
			return p.text.ReplaceAllString(err.Error(), p.is)
		}
	}
	return err.Error()
}
