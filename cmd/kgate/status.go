package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kgate/kgate/admin"
)

// statusCommand shows a running gateway.
type statusCommand struct {
	Admin adminAddrs `embed:""`
	JSON  bool       `name:"json" help:"Print the document of /api/v1/status."`
	Ready bool       `name:"ready" help:"Only say whether the gateway admits requests; exit 1 if not. For health checks."`
}

// Help implements kong.HelpProvider.
func (statusCommand) Help() string {
	return `Examples:
  kgate status
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
	s, data, err := r.status(context.Background())
	if err != nil {
		return err
	}
	if c.Ready {
		if !s.Gateway.Ready {
			return fmt.Errorf("%s is not ready: %s", s.Gateway.Name, s.Gateway.Reason)
		}
		_, err := fmt.Fprintf(std.out, "%s is ready\n", s.Gateway.Name)
		return err
	}
	if c.JSON {
		_, err := std.out.Write(data)
		return err
	}
	return printStatus(std.out, s)
}

func printStatus(out io.Writer, s *admin.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	state := "ready"
	if !s.Gateway.Ready {
		state = "not ready: " + s.Gateway.Reason
	}
	fmt.Fprintf(w, "gateway %s (kgate %s), %s\n", s.Gateway.Name, s.Version, state)
	fmt.Fprintf(w, "view %d, led by %s\n\n", s.Cluster.View, orDash(s.Cluster.Leader))
	fmt.Fprintln(w, "GATEWAY\tNODE\tADDRESS\tSTATUS\tLINK\tROUND TRIP")
	for _, m := range s.Cluster.Members {
		link, rtt := "down", "-"
		switch {
		case m.Self:
			link = "here"
		case m.LinkUp:
			link = "up"
		}
		if m.RTTMillis != nil {
			rtt = fmt.Sprintf("%.2f ms", *m.RTTMillis)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", m.Name, m.Node, orDash(m.Addr), m.Status, link, rtt)
	}
	fmt.Fprintln(w, "\nPOOL\tK\tBINDING\tIN FLIGHT HERE\tWAITING HERE\tWITHHELD\tHOME\tBATON\tMEAN WAIT (60 s)\tMAX")
	for _, p := range s.Pools {
		baton := "-"
		if p.BatonHere {
			baton = "here"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\t%.1f ms\t%.1f ms\n", p.Name, p.K, p.Binding, p.InFlight, p.Waiting, p.Withheld,
			orDash(p.Home), baton, p.AccessWindow.MeanMillis, p.AccessWindow.MaxMillis)
	}
	return w.Flush()
}

func orDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}
