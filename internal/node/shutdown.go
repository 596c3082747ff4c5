package node

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// BeginDrain refuses waiting requests, and from now on requests that would have to wait, unless the
// configuration has them served. Answers end their connections.
func (n *Node) BeginDrain() {
	if !n.leaving.Swap(true) {
		n.cfg.Logger.Info("draining", slog.Int("in_flight", n.pools.inFlight()))
	}
	n.stopServing(errEnds)
	if !n.cfg.ServeWaiting {
		n.pools.gateway.WaitNoMore()
	}
}

// Drain takes the gateway out of service: it refuses new requests, and waiting requests unless the
// configuration has them served. It returns when no request is in flight, or with ctx's error. The
// gateway stays in the cluster.
func (n *Node) Drain(ctx context.Context) error {
	n.BeginDrain()
	return n.drain(ctx)
}

func (n *Node) drain(ctx context.Context) error {
	err := n.pools.gateway.Drain(ctx, n.cfg.ServeWaiting)
	if err == nil {
		n.drained.Store(true)
	} else {
		n.logHeld()
	}
	return err
}

// drainOnly begins to drain; clients that watch tickets go on.
func (n *Node) drainOnly() {
	if n.leaving.Swap(true) {
		return
	}
	n.cfg.Logger.Info("draining, and staying in the cluster", slog.Int("in_flight", n.pools.inFlight()))
	n.wg.Go(func() {
		if n.drain(n.ctx) == nil {
			n.cfg.Logger.Info("drained")
		}
	})
}

// LeaveCluster leaves the cluster in order, after Drain: it aborts requests in flight, and the others
// form the line without this gateway. A gateway that leaves in order gives its slots back. So it does
// not leave in order if its requests do not end: the others wait for the end of its lease. Close comes
// next.
func (n *Node) LeaveCluster() {
	log := n.cfg.Logger
	if !n.brokenOff() {
		log.Warn("requests are still in flight: stopping without leaving the cluster; their slots come back when the lease has run out")
		return
	}
	const (
		handOver = 500 * time.Millisecond
		goodbye  = 11 * time.Second // membership gives up after ten
	)
	ctx, cancel := context.WithTimeout(context.Background(), handOver)
	defer cancel()
	if err := n.pools.gateway.HandOverTickets(ctx); err != nil {
		log.Info("tickets that nobody renews may live longer: the successors do not know how much of their time is left", slog.Any("error", err))
	}
	ctx, cancel = context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if err := n.peers.cluster.Leave(ctx); err != nil {
		log.Warn("stopped without leaving the cluster", slog.Any("error", err))
	} else if err := n.peers.gossip.Leave(); err != nil {
		log.Warn("stopped without leaving gossip", slog.Any("error", err))
	}
}

// brokenOff aborts requests in flight and reports whether all have ended.
func (n *Node) brokenOff() bool {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return n.pools.gateway.BreakOff(ctx) == nil
}

// Close ends everything at once, in the reverse order of its start.
func (n *Node) Close() error {
	n.cancel()
	var errs []error
	for i := len(n.undo) - 1; i >= 0; i-- {
		errs = append(errs, n.undo[i]())
	}
	n.undo = nil
	n.wg.Wait()
	return errors.Join(errs...)
}
