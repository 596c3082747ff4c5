package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// statusCommand shows a running gateway.
type statusCommand struct {
	Admin adminAddrs `embed:""`
	Watch bool       `name:"watch" xor:"what" help:"Show the status every second, until interrupted."`
	JSON  bool       `name:"json" help:"Print the document of /api/v1/status; with --watch one on each line."`
	Ready bool       `name:"ready" xor:"what" help:"Only print whether the gateway admits requests; exit with 1 if not. For health checks."`
}

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

func (c *statusCommand) Run(std streams) error {
	r, err := c.Admin.remote("")
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.once(context.Background(), r, std.out)
	}
	ctx, cancel := untilSignal()
	defer cancel()
	if c.JSON {
		return everySecond(ctx, func() error { return printLine(ctx, r, std.out) }, nil)
	}
	s := newScreen(std.out)
	defer s.open()()
	return everySecond(ctx, func() error { return c.show(ctx, r, s) }, s)
}

// once prints what the flags ask for, once.
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

// show shows the status once.
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
		// The rest is useful even without the line.
		if l, err := r.line(ctx, p.Name); err == nil {
			lines[p.Name] = *l
		}
	}
	v := statusView{screen: s}
	v.print(status, lines)
	return s.draw(v.out.String())
}

// everySecond calls do once a second until ctx ends. The first call must succeed; later
// errors are shown on the screen.
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
