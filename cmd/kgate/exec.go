package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kgate/kgate/client"
)

// execCommand holds a slot while a command runs.
type execCommand struct {
	Pool   string         `name:"pool" env:"KGATE_POOL" placeholder:"NAME" help:"Pool of the slot (default: the only one)."`
	Wait   *time.Duration `name:"wait" placeholder:"TIME" help:"Longest wait for the slot (default: no limit); 0: only if one is free."`
	TTL    time.Duration  `name:"ttl" default:"30s" help:"How long the slot stays in use after this process or its machine is lost (default ${default}); at most the pool's ticket_ttl."`
	Note   string         `name:"note" placeholder:"TEXT" help:"Text for operators (default: the names of the command and the host)."`
	Client string         `name:"client" placeholder:"NAME" help:"Whose slot it is, for the pool's limits of one client and the order fair (default: nobody's)."`
	adminFlags
	Command []string `arg:"" passthrough:"" name:"command" help:"The command and its arguments, after --."`
}

func (execCommand) Help() string {
	return `The slot is one of the k that all gateways share with the requests they proxy.
It is renewed while the command runs, at any gateway that answers. If it is lost
nevertheless, the command gets SIGTERM, and SIGKILL before somebody else can
get the slot: after a twentieth of --ttl, but at most five seconds, which is when
nine tenths of --ttl are over. So do the processes that it has started, except
those in process groups of their own. The same happens when this process is killed:
a small process, kgate exec-guard, watches it. Other signals are passed on. The
command finds the slot in KGATE_TICKET and its fence in KGATE_FENCE. Where upstreams
have a k of their own, KGATE_SLOT_UPSTREAM is the one that the slot is for; else it is empty.

Examples:
  kgate exec -- ./nightly-import
  kgate exec --pool downloads --wait 5m -- rsync -a src/ host:/dst/
  kgate exec --wait 0 --admin http://10.0.0.1:9080,http://10.0.0.2:9080 -- make

Exit codes: the command's, 128 and its number when a signal ended it; 69 no
gateway answers, 75 no slot came in time, 126 the command cannot run, 127 there
is no such command, 1 another failure, 2 wrong command line.`
}

// guardCommand is the command that a guard process runs.
type guardCommand struct{}

// guardName is its name on the command line.
const guardName = "exec-guard"

// passedOn are the signals that end the wait for a slot. While the command runs they are
// passed on to it.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
}

// Run holds a slot, runs the command, and ends with its exit code.
func (c *execCommand) Run(std streams) error {
	args := c.Command
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return usageError("no command; write it after --")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return notRunnable(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, slices.Concat(passedOn, jobSignals)...)
	defer signal.Stop(signals)
	slot, err := c.acquire(std, signals, args[0])
	if err != nil {
		return err
	}
	err = hold(std, slot, &exec.Cmd{Path: path, Args: args}, signals)
	if e := slot.Release(); e != nil {
		fmt.Fprintln(std.err, "kgate: the slot was not given back:", e)
	}
	return err
}

func notRunnable(err error) error {
	code := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &codedError{code: code, err: err}
}

// acquire waits for the slot; a signal ends the wait.
func (c *execCommand) acquire(std streams, signals <-chan os.Signal, name string) (*client.Slot, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	over := make(chan struct{})
	defer close(over)
	waiting.Go(func() {
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok && slices.Contains(passedOn, s) {
					cancel(&codedError{code: exitSignal + int(number)})
					return
				}
			case <-over:
				return
			}
		}
	})
	line := newStatusLine(std)
	defer line.end()
	token, err := c.Token.read()
	if err != nil {
		return nil, err
	}
	if c.Pool == "" {
		if c.Pool, err = c.onlyPool(ctx); err != nil {
			return nil, err
		}
	}
	gateways, err := client.New(client.Config{
		Admins: c.Admin.Admin, Token: token, TTL: c.TTL, Note: c.note(name), Client: c.Client, OnWait: c.show(line),
	})
	if err != nil {
		return nil, usageError("%w", err)
	}
	defer gateways.Close()
	slot, err := c.wait(ctx, gateways)
	return slot, c.explain(err)
}

func (c *execCommand) wait(ctx context.Context, gateways *client.Client) (*client.Slot, error) {
	switch {
	case c.Wait == nil:
		return gateways.Acquire(ctx, c.Pool)
	case *c.Wait <= 0:
		return gateways.TryAcquire(ctx, c.Pool)
	}
	ctx, cancel := context.WithTimeout(ctx, *c.Wait)
	defer cancel()
	return gateways.Acquire(ctx, c.Pool)
}

// onlyPool returns the only pool, which is meant when none is named.
func (c *execCommand) onlyPool(ctx context.Context) (string, error) {
	r, err := c.remote()
	if err != nil {
		return "", err
	}
	s, _, err := r.status(ctx)
	switch {
	case errors.Is(err, errNoAnswer):
		return "", &codedError{code: exitUnreachable, err: err}
	case err != nil:
		return "", err
	case len(s.Pools) != 1:
		return "", usageError("--pool: which one of %s?", poolNames(s))
	}
	return s.Pools[0].Name, nil
}

func (c *execCommand) note(name string) string {
	if c.Note != "" {
		return c.Note
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + " on " + host
}

// show shows the progress of a long wait on a terminal.
func (c *execCommand) show(line *statusLine) func(int, time.Duration) {
	begun := time.Now()
	return func(place int, expected time.Duration) {
		if time.Since(begun) > 2*time.Second {
			line.show(fmt.Sprintf("waiting for a slot of %s: place %d, about %v", c.Pool, place, expected))
		}
	}
}

// explain returns the error of a wait with its exit code.
func (c *execCommand) explain(err error) error {
	code := exitFailure
	var coded *codedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return coded
	case errors.Is(err, client.ErrUnreachable):
		code = exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		code, err = exitNoSlot, fmt.Errorf("no slot of %s in %v", c.Pool, *c.Wait)
	case errors.Is(err, client.ErrToken):
		err = errors.New("this needs the admin token: give its file with --admin-token-file or KGATE_ADMIN_TOKEN_FILE")
	case errors.Is(err, client.ErrBusy), errors.Is(err, client.ErrUnavailable):
		code = exitNoSlot
	}
	return &codedError{code: code, err: errors.New(strings.TrimPrefix(err.Error(), "client: "))}
}

// The variables in a command's environment. kgate itself reads none of them: the command may be a kgate,
// too.
const (
	variableTicket   = "KGATE_TICKET"
	variableFence    = "KGATE_FENCE"
	variableUpstream = "KGATE_SLOT_UPSTREAM"
)

// hold runs cmd while the slot is held. If it is lost, cmd has the slot's grace to end.
func hold(std streams, slot *client.Slot, cmd *exec.Cmd, signals chan os.Signal) (err error) {
	// The system ends the command with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, std.out, std.err
	cmd.Env = append(os.Environ(), variableTicket+"="+slot.ID(), variableFence+"="+slot.Fence(), variableUpstream+"="+slot.Upstream())
	all, err := startFamily(cmd, signals, slot.Grace())
	if err != nil {
		return notRunnable(err)
	}
	defer func() { all.end(err) }()
	ended := make(chan error, 1)
	go func() { ended <- all.wait(cmd) }()
	lost := slot.Lost()
	var kill <-chan time.Time
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			all.signal(s)
		case s := <-all.stopped:
			all.suspend(s)
		case <-all.resume:
			all.resumed()
		case <-lost:
			fmt.Fprintln(std.err, "kgate: the slot is lost; the command is stopped")
			all.signal(syscall.SIGTERM)
			all.lost(slot.Grace())
			lost, kill = nil, time.After(slot.Grace())
		case <-kill:
			all.signal(syscall.SIGKILL)
		}
	}
}
