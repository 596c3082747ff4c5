package proxy

import (
	"context"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Where the upstreams of a pool have a k of their own, each slot is for one of them: the
// gateways agree on which there are, and the balancer chooses none. It finds out which of them can
// be reached, so that the gateway gets no slot for another one.

// AgainSlot is a Slot that is for one upstream.
type AgainSlot interface {
	// Again gives the slot back, because its upstream could not be reached and nothing was sent,
	// and waits for another one, ahead of others and no longer than wait. If it fails, as
	// [Admitter].Acquire does, nothing is held.
	Again(ctx context.Context, wait time.Duration) error
}

// again gets the request a slot for another upstream, after nothing of it could be sent to that
// of its own, and returns that one. After an error it has none.
func (v *visit) again(ctx context.Context, pool *Pool, limit time.Duration) (upstream string, err error) {
	slot, may := v.hold.slot.(AgainSlot)
	if !may {
		return "", admission.UpstreamDown
	}
	v.hold.end()
	if cause := v.hold.aborted(); cause != nil {
		return "", cause
	}
	if limit >= 0 {
		limit = max(0, limit-time.Since(v.arrived))
	}
	err = slot.Again(ctx, limit)
	v.waited()
	if err != nil {
		return "", err
	}
	v.rec.Grant = v.hold.slot.GrantInfo()
	v.hold.limit(v.hold.down.ctx, v.hold.slot, pool)
	v.hold.resume()
	return admission.UpstreamOf(v.hold.slot), nil
}
