package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kgate/kgate/admin"
)

// statusCommand shows a running gateway.
type statusCommand struct {
	Admin string `name:"admin" env:"KGATE_ADMIN" default:"http://127.0.0.1:9080" placeholder:"URL" help:"Admin address of any gateway."`
	JSON  bool   `name:"json" help:"Print the document of /api/v1/status."`
}

// Help implements kong.HelpProvider.
func (statusCommand) Help() string {
	return `Examples:
  kgate status
  kgate status --json --admin http://10.0.0.2:9080

Exit codes: 0 shown, 1 the gateway does not answer, 2 wrong command line.`
}

// maxStatus bounds the document that is read.
const maxStatus = 16 << 20

// Run asks the gateway and prints what it says.
func (c *statusCommand) Run(std streams) error {
	data, err := c.fetch()
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := std.out.Write(data)
		return err
	}
	var s admin.Status
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s does not answer as a kgate does: %w", c.Admin, err)
	}
	return printStatus(std.out, &s)
}

func (c *statusCommand) fetch() ([]byte, error) {
	base, err := url.Parse(c.Admin)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, &codedError{code: exitUsage, err: fmt.Errorf("--admin %q is no URL; write http://HOST:PORT", c.Admin)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/api/v1/status").String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no gateway answers at %s; is it running, and is this its admin address? %w", c.Admin, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s; is this the admin address of a gateway?", c.Admin, resp.Status)
	}
	return data, nil
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
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", m.Name, m.Node, m.Addr, m.Status, link, rtt)
	}
	fmt.Fprintln(w, "\nPOOL\tK\tBINDING\tIN FLIGHT HERE\tWAITING HERE\tHOME\tBATON\tMEAN WAIT (60 s)\tMAX")
	for _, p := range s.Pools {
		baton := "-"
		if p.BatonHere {
			baton = "here"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\t%s\t%.1f ms\t%.1f ms\n", p.Name, p.K, p.Binding, p.InFlight, p.Waiting,
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
