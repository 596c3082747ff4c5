package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kgate/kgate/internal/admin"
)

// lister has the flags of commands that show a part of the status.
type lister struct {
	Admin adminAddrs `embed:""`
	JSON  bool       `name:"json" help:"Print it as in the document of /api/v1/status."`
}

// list prints the part of the status that pick returns as JSON, or show's text of it.
func (l *lister) list(std streams, pick func(*admin.Status) any, show func(*statusView, *admin.Status)) error {
	r, err := l.Admin.remote("")
	if err != nil {
		return err
	}
	s, _, err := r.status(context.Background())
	if err != nil {
		return err
	}
	if l.JSON {
		return printJSON(std.out, pick(s))
	}
	v := statusView{screen: newScreen(std.out)}
	show(&v, s)
	_, err = io.WriteString(std.out, v.out.String())
	return err
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// poolListCommand shows the pools.
type poolListCommand struct{ lister }

func (poolListCommand) Help() string {
	return `One line for each pool, over all gateways.

Examples:
  kgate pool list
  kgate pool list --json --admin http://10.0.0.2:9080

Exit codes: 0 shown, 1 no gateway answers, 2 wrong command line.`
}

// Run prints the pools.
func (c *poolListCommand) Run(std streams) error {
	return c.list(std, func(s *admin.Status) any { return s.Pools }, (*statusView).pools)
}

func (v *statusView) pools(s *admin.Status) {
	t := table{head: []string{"POOL", "IN USE", "K", "WAITING", "OLDEST", "MEAN WAIT", "BINDING"}, right: []int{1, 2, 3, 4, 5}, names: []int{0}}
	for _, p := range s.Pools {
		mean := "-"
		if w := p.Fleet.AccessWindow; w.Count > 0 {
			mean = admin.Millis(w.MeanMillis)
		}
		t.add(p.Name, fmt.Sprint(p.Fleet.InFlight), fmt.Sprint(p.K), fmt.Sprint(p.Fleet.Waiting), admin.Seconds(p.Fleet.OldestSeconds), mean, p.Binding)
	}
	v.table(t)
}

// table writes a table at the beginning of the output.
func (v *statusView) table(t table) { v.out.WriteString(t.text(v.screen)[len("\n"):]) }

// membersCommand shows the gateways.
type membersCommand struct{ lister }

func (membersCommand) Help() string {
	return `One line for each gateway of the cluster, as the one at --admin sees it: who votes,
what the others do if it is lost, and where it is reached.

Examples:
  kgate members
  kgate members --json --admin http://10.0.0.2:9080

Exit codes: 0 shown, 1 no gateway answers, 2 wrong command line.`
}

// Run prints the gateways.
func (c *membersCommand) Run(std streams) error {
	return c.list(std, func(s *admin.Status) any { return s.Cluster.Members }, func(v *statusView, s *admin.Status) { v.table(membersTable(v.screen, s.Cluster)) })
}

// upstreamsCommand shows the upstreams.
type upstreamsCommand struct{ lister }

func (upstreamsCommand) Help() string {
	return `One line for each upstream of each pool, over all gateways: whether it is up, for how
long it has been down or silent, its requests in flight, its errors, how long its answers
take, and why it is down.

Examples:
  kgate upstreams
  kgate upstreams --json --admin http://10.0.0.2:9080

Exit codes: 0 shown, 1 no gateway answers, 2 wrong command line.`
}

// poolUpstream is an upstream with the pool that it serves.
type poolUpstream struct {
	Pool string `json:"pool"`
	admin.Upstream
}

// Run prints the upstreams.
func (c *upstreamsCommand) Run(std streams) error {
	all := func(s *admin.Status) []poolUpstream {
		out := []poolUpstream{}
		for _, p := range s.Pools {
			for _, u := range p.Fleet.Upstreams {
				out = append(out, poolUpstream{p.Name, u})
			}
		}
		return out
	}
	return c.list(std, func(s *admin.Status) any { return all(s) }, func(v *statusView, s *admin.Status) {
		t, why := table{head: append([]string{"POOL"}, upstreamHead...), right: []int{3, 4, 5, 6}, names: []int{0, 1}}, ""
		for _, u := range all(s) {
			t.add(append([]string{u.Pool}, upstreamCells(v.screen, u.Upstream)...)...)
			if u.Why != "" {
				why += fmt.Sprintf("\n%s: %s: %s\n", u.Pool, u.URL, u.Why)
			}
		}
		v.table(t)
		v.say("%s", why)
	})
}
