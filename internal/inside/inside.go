// Package inside is the door between package kgate and its package gateway, which starts the same
// node with more than kgate's Config says. What it hands over has types that kgate's own API
// leaves out, so that programs which import only kgate do not meet them.
package inside

import (
	"context"

	"github.com/kgate/kgate/internal/node"
)

// Package kgate sets these. Their arguments of type any are a kgate.Config, or a *kgate.Node. Edit
// completes what the Config says; its pools are in the Config's order.
var (
	// Start is kgate.Start. It returns a *kgate.Node.
	Start func(ctx context.Context, cfg any, edit func(*node.Config)) (any, error)
	// Reload is the Reload of a Node.
	Reload func(n, cfg any, edit func(*node.Config)) error
	// Open returns what is inside of a Node, and what Measure returned for it.
	Open func(n any) (*node.Node, any)
	// Told returns an error from inside as the Node tells it.
	Told func(n any, err error) error
)

// Measure makes the metrics of a node, and returns their prometheus.Collector. Package gateway sets
// it; nil: nobody wants metrics.
var Measure func(*node.Config) (any, error)
