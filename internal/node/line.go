package node

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
)

func (r *report) Find(trace string) (pool string, found admin.Entries) {
	pool, line := r.pools.gateway.FindTrace(trace)
	return pool, r.entries(line)
}

func (r *report) Gateway(id string) (string, error) {
	_, node, _, err := gateway.ParseEntry(id)
	if err != nil {
		return "", fmt.Errorf("%w: nothing in the line is called %.100q", admin.ErrUnknown, id)
	}
	m, in := r.peers.cluster.View().Member(node)
	if !in {
		return "", fmt.Errorf("%w: its gateway is no longer in the cluster", admin.ErrUnknown)
	}
	return m.Name, nil
}

func (r *report) Cancel(id string) error {
	if err := r.pools.gateway.Cancel(id); err != nil {
		return fmt.Errorf("%w: it waits no longer", admin.ErrUnknown)
	}
	return nil
}

// entries returns a line as the admin API shows it.
func (r *report) entries(line gateway.Line) admin.Entries {
	shown := func(of []gateway.LineEntry) []admin.Entry {
		out := make([]admin.Entry, len(of))
		for i, e := range of {
			out[i] = admin.Entry{
				ID: e.ID, Gateway: r.cfg.Name, Seconds: e.For.Seconds(), InLineSeconds: e.InLine.Seconds(), Arrived: e.Arrived.UTC(),
				Client: addr(e.Info.Remote), Method: e.Info.Method, Path: shortened(e.Info.Path), Trace: e.Info.Trace,
				Ticket: e.Ticket, Note: shortened(cmp.Or(e.Remark, e.Info.Note)),
			}
		}
		return out
	}
	return admin.Entries{Waiting: shown(line.Waiting), Holding: shown(line.Holding)}
}

// shortened keeps the beginning of a path: a client may send a very long one.
func shortened(path string) string {
	const most = 256
	if len(path) <= most {
		return path
	}
	return path[:most] + "…"
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
