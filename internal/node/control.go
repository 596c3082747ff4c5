package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/membership"
)

var _ admin.Control = control{}

// control lets the admin address change the cluster.
type control struct {
	cluster      *membership.Cluster
	drain, leave func()
}

func (c control) SetK(ctx context.Context, pool string, k, was int) error {
	if _, known := c.cluster.View().Pool(pool); !known {
		return fmt.Errorf("%w: the cluster has no pool %q", admin.ErrUnknown, pool)
	}
	return controlError(c.cluster.SetK(ctx, pool, k, was))
}

func (c control) Drain(context.Context) error {
	c.drain()
	return nil
}

func (c control) Leave(context.Context) error {
	c.leave()
	return nil
}

func (c control) Suspend(ctx context.Context, member string) error {
	if _, known := c.cluster.View().Named(member); !known {
		return fmt.Errorf("%w: there is no gateway %q in the cluster", admin.ErrUnknown, member)
	}
	return controlError(c.cluster.Suspend(ctx, member))
}

func controlError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, membership.ErrConflict):
		return fmt.Errorf("%w: %w", admin.ErrConflict, err)
	case errors.Is(err, membership.ErrCommand):
		return fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	default:
		return fmt.Errorf("%w: %w", admin.ErrUnavailable, err)
	}
}
