package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/membership"
)

var _ admin.Control = control{}

// control lets the admin address change the cluster.
type control struct{ node *Node }

func (c control) SetK(ctx context.Context, pool, upstream string, k, was int) error {
	if _, known := c.node.peers.cluster.View().Pool(pool); !known {
		return fmt.Errorf("%w: the cluster has no pool %q", admin.ErrUnknown, pool)
	}
	if upstream != "" {
		return controlError(c.node.SetUpstreamK(ctx, pool, upstream, k, was))
	}
	return controlError(c.node.SetK(ctx, pool, k, was))
}

// SetRate implements admin.Control.
func (c control) SetRate(ctx context.Context, pool string, change admin.RateChange) error {
	spec, known := c.node.peers.cluster.View().Pool(pool)
	if !known {
		return fmt.Errorf("%w: the cluster has no pool %q", admin.ErrUnknown, pool)
	}
	rate := spec.Rate
	if change.Down != nil {
		rate.Down = *change.Down
	}
	if change.Up != nil {
		rate.Up = *change.Up
	}
	return controlError(c.node.SetRate(ctx, pool, rate))
}

func (c control) Drain() { c.node.drainOnly() }

func (c control) Leave() { c.node.leaveOnce.Do(c.node.cfg.OnLeave) }

// Reload implements admin.Control.
func (c control) Reload(ctx context.Context) ([]string, error) {
	if c.node.cfg.Reload == nil {
		return nil, fmt.Errorf("%w: this gateway has no configuration file", admin.ErrUnavailable)
	}
	changes, err := c.node.cfg.Reload(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	return changes, err
}

func (c control) Suspend(ctx context.Context, member string) error {
	if _, known := c.node.peers.cluster.View().Newest(member); !known {
		return fmt.Errorf("%w: there is no gateway %q in the cluster", admin.ErrUnknown, member)
	}
	return controlError(c.node.peers.cluster.Suspend(ctx, member))
}

func controlError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, membership.ErrConflict):
		return fmt.Errorf("%w: %w", admin.ErrConflict, err)
	case errors.Is(err, membership.ErrCommand):
		return fmt.Errorf("%w: %s", admin.ErrInvalid, strings.TrimPrefix(err.Error(), membership.ErrCommand.Error()+": "))
	default:
		return fmt.Errorf("%w: %w", admin.ErrUnavailable, err)
	}
}
