package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// statusCommand shows a running gateway.
type statusCommand struct {
	Admin adminAddrs `embed:""`
	Watch bool       `name:"watch" xor:"what" help:"Show it again every second, until interrupted."`
	JSON  bool       `name:"json" help:"Print the document of /api/v1/status; with --watch one on each line."`
	Ready bool       `name:"ready" xor:"what" help:"Only say whether the gateway admits requests; exit 1 if not. For health checks."`
}

// Help implements kong.HelpProvider.
func (statusCommand) Help() string {
	return `Shows the cluster, its pools over all gateways, who holds slots and who waits,
from any gateway. Colours only on a terminal, and not if NO_COLOR is set.

Examples:
  kgate status
  kgate status --watch
  kgate status --json --admin http://10.0.0.2:9080
  kgate status --admin http://10.0.0.2:9080,http://10.0.0.3:9080
  kgate status --ready

Exit codes: 0 shown, with --ready: ready, 1 the gateway does not answer or is not
ready, 2 wrong command line.`
}

// Run asks the gateway and prints what it says.
func (c *statusCommand) Run(std streams) error {
	r, err := c.Admin.remote("")
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.once(context.Background(), r, std.out)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if c.JSON {
		return everySecond(ctx, func() error { return printLine(ctx, r, std.out) }, nil)
	}
	s := newScreen(std.out)
	defer s.open()()
	return everySecond(ctx, func() error { return c.show(ctx, r, s) }, s)
}

// once says what is asked for, once.
func (c *statusCommand) once(ctx context.Context, r *remote, out io.Writer) error {
	if !c.JSON && !c.Ready {
		return c.show(ctx, r, newScreen(out))
	}
	s, data, err := r.status(ctx)
	switch {
	case err != nil:
	case c.JSON:
		_, err = out.Write(data)
	case !s.Gateway.Ready:
		err = fmt.Errorf("%s is not ready: %s", s.Gateway.Name, s.Gateway.Reason)
	default:
		_, err = fmt.Fprintf(out, "%s is ready\n", s.Gateway.Name)
	}
	return err
}

// show shows it once.
func (c *statusCommand) show(ctx context.Context, r *remote, s *screen) error {
	status, _, err := r.status(ctx)
	if err != nil {
		return err
	}
	lines := make(map[string]admin.Line)
	for _, p := range status.Pools {
		if p.Fleet.InFlight+p.Fleet.Waiting == 0 {
			continue
		}
		// Without it the rest is worth showing, too.
		if l, err := r.line(ctx, p.Name); err == nil {
			lines[p.Name] = *l
		}
	}
	v := statusView{screen: s}
	v.print(status, lines)
	return s.draw(v.out.String())
}

// everySecond does it until ctx ends. The first time it must work; later
// the screen says what is wrong.
func everySecond(ctx context.Context, do func() error, s *screen) error {
	const every = time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		err := do()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || s == nil):
			return err
		case err != nil:
			if err := s.draw(s.bad("! "+err.Error()) + "\n\n" + s.last); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func printLine(ctx context.Context, r *remote, out io.Writer) error {
	_, data, err := r.status(ctx)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, b.String())
	return err
}
