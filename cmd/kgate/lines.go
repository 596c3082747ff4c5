package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/gateway"
)

var (
	_ admin.Lines = lines{}
	_ admin.Peers = (*node)(nil)
)

// errStarting: there is no gateway yet.
var errStarting = errors.New("starting")

// CallFleet implements admin.Peers.
func (n *node) CallFleet(ctx context.Context, name, path string, body, into any) error {
	if n.gateway == nil {
		return errStarting
	}
	return n.gateway.CallFleet(ctx, name, path, body, into)
}

// lines shows who is in the gateway's pools.
type lines struct{ n *node }

// Find implements admin.Lines.
func (l lines) Find(trace string) (pool string, found admin.Entries) {
	pool, line := l.n.gateway.FindTrace(trace)
	return pool, l.n.entries(line)
}

// Position implements admin.Lines.
func (l lines) Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration) {
	return l.n.gateway.Position(ctx, pool, arrived)
}

// Gateway implements admin.Lines.
func (l lines) Gateway(id string) (string, error) {
	_, node, err := gateway.ParseEntry(id)
	if err != nil {
		return "", fmt.Errorf("%w: nothing in the line is called %.100q", admin.ErrUnknown, id)
	}
	m, in := l.n.cluster.View().Member(node)
	if !in {
		return "", fmt.Errorf("%w: its gateway is no longer in the cluster", admin.ErrUnknown)
	}
	return m.Name, nil
}

// Cancel implements admin.Lines.
func (l lines) Cancel(id string) error {
	if err := l.n.gateway.Cancel(id); err != nil {
		return fmt.Errorf("%w: it waits no longer", admin.ErrUnknown)
	}
	return nil
}

// entries are a line in the words of the admin address.
func (n *node) entries(line gateway.Line) admin.Entries {
	shown := func(of []gateway.LineEntry) []admin.Entry {
		out := make([]admin.Entry, len(of))
		for i, e := range of {
			out[i] = admin.Entry{
				ID: e.ID, Gateway: n.cfg.Node.Name, Seconds: e.For.Seconds(), InLineSeconds: e.InLine.Seconds(), Arrived: e.Arrived.UTC(),
				Client: addr(e.Info.Remote), Method: e.Info.Method, Path: shortened(e.Info.Path), Trace: e.Info.Trace,
				Ticket: e.Ticket, Note: e.Remark,
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
