package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// DefinePool makes sure that there is a pool of the given name: it returns nil
// when this gateway's view has one. The first definition wins, so K, Classes, Rate, Binding,
// Reclaim (default admission.ReclaimLease) and HoldMax of the view's pool may be others;
// the other fields of the argument do not count. It waits until this gateway is
// in the view, and keeps trying until ctx ends.
func (c *Cluster) DefinePool(ctx context.Context, p Pool) error {
	define := views.Define{Name: p.Name, K: p.K, Rate: p.Rate, Binding: p.Binding, Reclaim: cmp.Or(p.Reclaim, admission.ReclaimLease), HoldMax: p.HoldMax, Classes: p.Classes}
	if err := define.Check(); err != nil {
		return err
	}
	known := func(v *View) bool { _, ok := v.Pool(p.Name); return ok }
	// A pool without members would have no home.
	if err := c.Ready(ctx); err != nil {
		return fmt.Errorf("define pool %q: %w", p.Name, err)
	}
	if known(c.View()) {
		return nil
	}
	return c.agree(ctx, fmt.Sprintf("define pool %q", p.Name), views.Command{Define: &define})
}

// SetK changes the number of tokens of a pool in a new epoch and returns when
// this gateway's view has it. With was other than 0 it fails with ErrConflict
// unless the agreed number is was, or k already. It keeps trying until ctx ends.
//
// In a pool with a rate, a larger number takes two steps: each token carries a part of the
// rate, so all gateways have to divide it by the new number before there are more
// tokens. The first step begins an epoch with the old number. With that epoch, once it has
// begun at all gateways, the second one may follow; with another one it fails with
// ErrConflict, and also while a lost gateway has a lease. See [Pool.Parts].
func (c *Cluster) SetK(ctx context.Context, pool string, k, was int, epoch uint64) error {
	err := views.CheckK(k)
	if err == nil && was != 0 {
		err = views.CheckK(was)
	}
	view := c.View()
	if have, ok := view.Pool(pool); ok && err == nil {
		err = cmp.Or(have.CheckK("", k), have.Rate.CheckParts(k))
	}
	if err != nil {
		return err
	}
	return c.agree(ctx, fmt.Sprintf("set k of pool %q", pool), views.Command{SetK: &views.SetK{Name: pool, K: k, Was: was, Epoch: epoch}})
}

// SetUpstreamK changes the k of one upstream of a pool in a new epoch, and returns when this
// gateway's view has it. One that the pool does not have is added. 0: it takes no new requests,
// and is forgotten when it has none any more. With was other than 0 it fails with ErrConflict
// unless the agreed number is was, or k already. It keeps trying until ctx ends.
func (c *Cluster) SetUpstreamK(ctx context.Context, pool, upstream string, k, was int) error {
	if have, ok := c.View().Pool(pool); ok {
		if err := have.CheckK(upstream, k); err != nil {
			return err
		}
	}
	set := &views.SetK{Name: pool, Upstream: upstream, K: k, Was: was}
	return c.agree(ctx, fmt.Sprintf("set k of upstream %s of pool %q", upstream, pool), views.Command{SetK: set})
}

// SetServers says which servers an upstream's name has now, in a new epoch if they are others than
// before and the pool still is in c.Epoch. It returns when this gateway's view has a later one, or
// nothing is to change. It keeps trying until ctx ends.
func (c *Cluster) SetServers(ctx context.Context, set SetServers) error {
	if have, ok := c.View().Pool(set.Pool); ok {
		if _, changed, err := have.WithServers(set); err != nil || !changed {
			return err
		}
	}
	return c.agree(ctx, fmt.Sprintf("set the servers of %s of pool %q", set.Name, set.Pool), views.Command{SetServers: &set})
}

// SetRate changes the rate of a pool in a new epoch, and returns when this gateway's view
// has it. A lower rate holds when that epoch has begun at all gateways, and no lost one
// has a lease. It keeps trying until ctx ends.
func (c *Cluster) SetRate(ctx context.Context, pool string, rate Rate) error {
	err, view := rate.Check(), c.View()
	if have, ok := view.Pool(pool); ok && err == nil {
		err = rate.CheckParts(have.K)
	}
	if err != nil {
		return err
	}
	return c.agree(ctx, fmt.Sprintf("set the rate of pool %q", pool), views.Command{SetRate: &views.SetRate{Name: pool, Rate: rate}})
}

// Why says why an epoch ends that nothing else ends.
type Why struct {
	// Spread: only to spread the free tokens.
	Spread bool
	// Whole: K was lowered, and no more than K tokens are in use any more.
	Whole bool
}

// Recover begins a new epoch of a pool if it still is in the given one, and
// returns when this gateway's view has a later one. It keeps trying until ctx ends.
func (c *Cluster) Recover(ctx context.Context, pool string, epoch uint64, why Why) error {
	return c.agree(ctx, fmt.Sprintf("recover pool %q", pool), views.Command{Recover: &views.Recover{Pool: pool, Epoch: epoch, Spread: why.Spread, Whole: why.Whole}})
}

// UseTickets notes for good that the pool gives out tickets whose time to live is not longer
// than ttl, and returns when this gateway's view says so. It keeps trying until ctx ends.
func (c *Cluster) UseTickets(ctx context.Context, pool string, ttl time.Duration) error {
	said := func(v *View) bool {
		have, ok := v.Pool(pool)
		return ok && have.Tickets > 0 && have.LongestTTL() >= ttl
	}
	if said(c.View()) {
		return nil
	}
	return c.agree(ctx, fmt.Sprintf("use tickets in pool %q", pool), views.Command{UseTickets: &views.UseTickets{Pool: pool, TTL: ttl}})
}

// Suspend takes the named gateway out as one whose lease may still run, with its vote, and
// returns when this gateway's view has it. If it is alive it comes back as another incarnation,
// and keeps its vote. One that is lost already loses its vote. It keeps trying until ctx ends or
// there has been no leader for a while.
func (c *Cluster) Suspend(ctx context.Context, name string) error {
	node, known := c.View().Newest(name)
	if !known {
		return fmt.Errorf("%w: there is no gateway %q in the view", ErrCommand, name)
	}
	suspend := views.Suspend{Nodes: []kmutex.Node{node}, Reasons: []string{views.CutReason(views.ByOperator + ", at " + c.config.Name)}}
	if err := c.agree(ctx, "suspend "+name, views.Command{Suspend: &suspend}); err != nil {
		return err
	}
	// The leader takes its vote next, unless it lives.
	ctx, cancel := context.WithTimeout(ctx, c.View().Lease)
	defer cancel()
	_ = c.await(ctx, func() bool {
		_, back := c.View().Named(name)
		voters, _ := c.Voting()
		return back || !slices.Contains(voters, name)
	})
	return nil
}
