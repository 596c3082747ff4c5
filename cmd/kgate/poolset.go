package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/config"
)

type poolCommand struct {
	List poolListCommand `cmd:"" help:"Show the pools over all gateways."`
	Set  poolSetCommand  `cmd:"" help:"Change how many requests may be in flight, or how many bytes may move, without a restart."`
}

// poolSetCommand changes k.
type poolSetCommand struct {
	Name     string `arg:"" help:"The pool."`
	K        int    `name:"k" xor:"what" required:"" placeholder:"N" help:"At most N requests in flight, over all gateways."`
	Upstream string `name:"upstream" placeholder:"URL" help:"With --k: at most N of them at this upstream, 0 no new ones; it may be a new one. For pools whose upstreams have a k of their own."`
	Was      int    `name:"was" placeholder:"N" help:"Change nothing unless k is N now (default: as the gateway shows it)."`
	Rate     string `name:"rate" xor:"what" required:"" placeholder:"RATE" help:"At most RATE to clients, over all gateways, such as 100MiB/s; 0: no limit."`
	Up       string `name:"rate-up" xor:"what" required:"" placeholder:"RATE" help:"The same from clients to the upstreams."`
	adminFlags
}

func (poolSetCommand) Help() string {
	return `The change applies to the whole cluster and outlives restarts; k in the
configuration files is for new pools only. When k is lowered, requests in flight
finish; none is aborted. Where upstreams have a k of their own, --upstream says whose it
is: a new one is added, and one with --k 0 is forgotten when its last request has ended. A lower rate applies at every gateway when the command
returns.

Examples:
  kgate pool set downloads --k 12
  kgate pool set downloads --k 12 --was 8
  kgate pool set llm --upstream http://10.0.2.1:8000 --k 3
  kgate pool set downloads --rate 50MiB/s
  kgate pool set downloads --k 12 --admin http://10.0.0.2:9080 --admin-token-file token

Exit codes: 0 changed, 1 not changed, 2 wrong command line.`
}

// Run changes k from its present value, so of two changes at once one fails.
func (c *poolSetCommand) Run(std streams) error {
	if c.Rate != "" || c.Up != "" {
		return c.setRate(std)
	}
	if c.K < 1 && c.Upstream == "" {
		return usageError("--k is %d: it must be at least 1", c.K)
	}
	r, err := c.remote()
	if err != nil {
		return err
	}
	ctx := context.Background()
	now, err := presentK(ctx, r, c.Name, c.Upstream)
	if err != nil {
		return err
	}
	what := strings.TrimSpace(c.Name + " " + c.Upstream)
	c.Was = cmp.Or(c.Was, now)
	if now == c.K {
		_, err = fmt.Fprintf(std.out, "%s: k is %d already; nothing has changed\n", what, c.K)
		return err
	}
	change := map[string]any{"k": c.K, "was": c.Was}
	if c.Upstream != "" {
		change["upstream"] = c.Upstream
	}
	if _, err := r.post(ctx, "/api/v1/pools/"+url.PathEscape(c.Name), change); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: k %d -> %d\n", what, c.Was, c.K)
	return err
}

func (c *poolSetCommand) setRate(std streams) error {
	if c.Was != 0 || c.Upstream != "" {
		return usageError("--was and --upstream go with --k only: leave them out, or give --k")
	}
	var change admin.RateChange
	for _, f := range []struct {
		flag, text string
		to         **int64
	}{{"--rate", c.Rate, &change.Down}, {"--rate-up", c.Up, &change.Up}} {
		if f.text == "" {
			continue
		}
		rate, err := config.ParseRate(f.text)
		if err != nil {
			return usageError("%s: %w", f.flag, err)
		}
		n := int64(rate)
		*f.to = &n
	}
	r, err := c.remote()
	if err != nil {
		return err
	}
	if _, err := r.post(context.Background(), "/api/v1/pools/"+url.PathEscape(c.Name), map[string]any{"rate": change}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: rate changed\n", c.Name)
	return err
}

// presentK returns the k of a pool or, if it is not empty, of one of its upstreams: 0, if that
// is new.
func presentK(ctx context.Context, r *remote, name, upstream string) (int, error) {
	s, _, err := r.status(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range s.Pools {
		switch {
		case p.Name != name:
		case upstream == "":
			return p.K, nil
		default:
			return kOfUpstream(&p, upstream), nil
		}
	}
	if len(s.Pools) == 0 && !s.Gateway.Ready {
		return 0, fmt.Errorf("%s takes no part in any pool: %s", s.Gateway.Name, s.Gateway.Reason)
	}
	return 0, fmt.Errorf("no pool is named %q; there are: %s", name, poolNames(s))
}

func kOfUpstream(p *admin.Pool, upstream string) int {
	for _, u := range p.Upstreams {
		if u.URL == upstream && u.K != nil {
			return *u.K
		}
	}
	return 0
}

func poolNames(s *admin.Status) string {
	names := make([]string, len(s.Pools))
	for i, p := range s.Pools {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}
