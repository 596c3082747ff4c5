package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// drainCommand drains a gateway.
type drainCommand struct {
	Timeout time.Duration `name:"timeout" default:"1m" help:"How long to wait for the requests in flight (default ${default}); 0: do not wait."`
	adminFlags
}

func (drainCommand) Help() string {
	return `The gateway refuses new requests, finishes those in flight, and stays in the
cluster until it is shut down. It does not wait for tickets: they stay.

Examples:
  kgate drain
  kgate drain --admin http://10.0.0.2:9080 --admin-token-file token --timeout 10m

Exit codes: 0 drained, 1 not drained, 2 wrong command line.`
}

// Run asks the gateway to drain and waits until it has.
func (c *drainCommand) Run(std streams) error {
	ctx := context.Background()
	r, name, _, err := c.postOne(ctx, "/api/v1/drain")
	if err != nil {
		return err
	}
	if c.Timeout == 0 {
		_, err := fmt.Fprintf(std.out, "%s drains\n", name)
		return err
	}
	var s *admin.Status
	done, err := watch(std, c.Timeout, func() (bool, string, error) {
		if s, _, err = r.status(ctx); err != nil {
			return false, "", err
		}
		return s.Gateway.Drained, fmt.Sprintf("%s drains: %s", name, busy(s)), nil
	})
	switch {
	case err != nil:
		return err
	case !done:
		return fmt.Errorf("%s is not drained after %v: %s; it goes on draining", name, c.Timeout, busy(s))
	}
	_, err = fmt.Fprintf(std.out, "%s is drained\n", name)
	return err
}

// busy describes the requests and slots in use at the gateway, the slots of tickets included, which
// draining does not end.
func busy(s *admin.Status) string {
	inFlight, waiting := 0, 0
	for _, p := range s.Pools {
		inFlight += p.InFlight
		waiting += p.Waiting
	}
	return fmt.Sprintf("%d slots in use, %d waiting", inFlight, waiting)
}

// leaveCommand shuts a gateway down.
type leaveCommand struct {
	Force   string        `name:"force" placeholder:"NAME" help:"Remove the gateway of this name from the cluster: it is lost for good."`
	Timeout time.Duration `name:"timeout" default:"1m" help:"How long to wait for its end (default ${default}); 0: do not wait."`
	adminFlags
}

func (leaveCommand) Help() string {
	return `Without --force the gateway at --admin ends as on SIGTERM: waiting requests are
refused or served, those in flight finish, and the others go on without it.

With --force any other gateway removes it at once, with its vote, also if it is lost
already. Its slots come back when its lease has surely run out; until then they count
as in use. If it runs, it joins again. Without a majority nobody can be removed.

Examples:
  kgate leave --admin http://10.0.0.2:9080 --admin-token-file token
  kgate leave --force gw-2

Exit codes: 0 done, 1 not done, 2 wrong command line.`
}

// Run shuts the gateway down, or removes the named gateway.
func (c *leaveCommand) Run(std streams) error {
	if c.Force != "" {
		return c.force(std)
	}
	ctx := context.Background()
	r, name, _, err := c.postOne(ctx, "/api/v1/leave")
	if err != nil {
		return err
	}
	if c.Timeout == 0 {
		_, err := fmt.Fprintf(std.out, "%s leaves\n", name)
		return err
	}
	done, err := watch(std, c.Timeout, func() (bool, string, error) {
		s, _, err := r.status(ctx)
		switch {
		case errors.Is(err, errNoListener):
			return true, "", nil
		case err != nil: // the connection ended with the process
			return false, name + " leaves", nil
		}
		return false, fmt.Sprintf("%s leaves: %s", name, busy(s)), nil
	})
	switch {
	case err != nil:
		return err
	case !done:
		return fmt.Errorf("%s still answers after %v; it goes on leaving", name, c.Timeout)
	}
	_, err = fmt.Fprintf(std.out, "%s has left\n", name)
	return err
}

func (c *leaveCommand) force(std streams) error {
	r, err := c.remote()
	if err != nil {
		return err
	}
	if _, err := r.post(context.Background(), "/api/v1/members/"+url.PathEscape(c.Force)+"/suspend", nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s is removed; its slots come back when its lease has run out. If it still runs, it joins again: end it there\n", c.Force)
	return err
}
