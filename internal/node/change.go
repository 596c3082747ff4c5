package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/proxy"
)

// SetK changes a pool's k over the whole cluster from was, or from any value if was is 0, and waits for
// the epoch with it.
//
// In a pool with a rate each token carries a part of it. For a larger k all gateways first divide the
// rate by the new k, and the new tokens come once all do: a lost gateway may use larger parts for as
// long as it has a lease.
func (n *Node) SetK(ctx context.Context, pool string, k, was int) error {
	cluster := n.peers.cluster
	before, _ := cluster.View().Pool(pool)
	for {
		epoch := uint64(0)
		if before.Rate != (Rate{}) && k > before.K {
			var err error
			if epoch, err = n.pools.settled(ctx, pool); err != nil {
				return fmt.Errorf("k waits until all gateways divide the rate by %d: %w", k, err)
			}
		}
		err := cluster.SetK(ctx, pool, k, was, epoch)
		now, known := cluster.View().Pool(pool)
		switch {
		case err != nil && (!errors.Is(err, membership.ErrConflict) || epoch == 0 || now.K != before.K || was != 0 && was != now.K):
			return err
		case err == nil && (epoch == 0 || !known || now.K != before.K):
			n.pools.awaitEpoch(ctx, pool)
			return nil
		}
	}
}

// SetUpstreamK changes the k of one upstream of a pool over the whole cluster from was, or from any
// value if was is 0, and waits for the epoch with it. It adds an upstream that the pool does not have, unless
// k is 0.
func (n *Node) SetUpstreamK(ctx context.Context, pool, upstream string, k, was int) error {
	cluster := n.peers.cluster
	if agreed, known := cluster.View().Pool(pool); known {
		if err := checkUpstream(agreed.Classes, upstream); err != nil {
			return fmt.Errorf("%w: %w", membership.ErrCommand, err)
		}
	}
	if err := cluster.SetUpstreamK(ctx, pool, upstream, k, was); err != nil {
		return err
	}
	n.pools.awaitEpoch(ctx, pool)
	return nil
}

// awaitEpoch waits until the pool's newest epoch has begun here, for 2 s at most. Until an epoch has begun nobody
// is admitted: whoever sets k again and again is not to leave the pool no time to serve.
func (p *pools) awaitEpoch(ctx context.Context, pool string) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		begun := p.gateway.Begun()
		spec, _ := p.peers.cluster.View().Pool(pool)
		here := p.gateway.Status(pool)
		if witness := here.Name == ""; witness || hasBegun(&here, &spec) {
			return
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return
		}
	}
}

// checkUpstream returns an error unless a pool whose upstreams have a k of their own has the upstream,
// or may have it.
func checkUpstream(classes []membership.Class, upstream string) error {
	if slices.ContainsFunc(classes, func(c membership.Class) bool { return c.Upstream == upstream }) {
		return nil
	}
	u, err := url.Parse(upstream)
	if err != nil {
		return errors.New("that is not the URL of an upstream")
	}
	if err := proxy.CheckServer(u); err != nil {
		return err
	}
	for _, c := range classes {
		have, err := url.Parse(c.Upstream)
		switch {
		case err != nil:
		case sameServer(c.Upstream, upstream):
			return fmt.Errorf("the pool has this server as %s", c.Upstream)
		case (have.Scheme == "tcp") != (u.Scheme == "tcp"):
			return fmt.Errorf("%.100s is of another kind than %s: a pool is for TCP connections or for requests", upstream, c.Upstream)
		}
	}
	return nil
}

// SetRate changes a pool's rate over the whole cluster, and returns when it holds
// everywhere.
func (n *Node) SetRate(ctx context.Context, pool string, rate Rate) error {
	if err := n.peers.cluster.SetRate(ctx, pool, rate); err != nil {
		return err
	}
	if _, err := n.pools.settled(ctx, pool); err != nil {
		return fmt.Errorf("the rate is changed, but a gateway may still go by the one before: %w", err)
	}
	return nil
}

// settled waits until the pool's epoch has begun here, so that no member uses an older view, and until
// no lost gateway has a lease. It returns the epoch.
func (p *pools) settled(ctx context.Context, pool string) (uint64, error) {
	const look = 10 * time.Millisecond
	for {
		view := p.peers.cluster.View()
		spec, known := view.Pool(pool)
		here := p.gateway.Status(pool)
		leased := slices.ContainsFunc(view.Lost, func(l membership.Lost) bool { return l.Leased })
		if !known || hasBegun(&here, &spec) && !leased {
			return spec.Epoch, nil
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// hasBegun reports whether the pool's agreed epoch has begun here.
func hasBegun(here *gateway.PoolStatus, agreed *membership.Pool) bool {
	return here.Begun && here.Epoch >= agreed.Epoch
}
