package kgate

import (
	"context"

	"github.com/kgate/kgate/internal/inside"
	"github.com/kgate/kgate/internal/node"
)

// Package gateway, which this one does not know, goes in here.
func init() {
	inside.Start = func(ctx context.Context, cfg any, edit func(*node.Config)) (any, error) {
		return start(ctx, cfg.(Config), edit)
	}
	inside.Reload = func(n, cfg any, edit func(*node.Config)) error { return n.(*Node).reload(cfg.(Config), edit) }
	inside.Open = func(n any) (*node.Node, any) {
		if n := n.(*Node); n != nil {
			return n.node, n.metrics
		}
		return nil, nil
	}
	inside.Told = func(n any, err error) error { return n.(*Node).told(err) }
}
