package node

import (
	"context"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// A gateway whose requests do not end in time breaks them off, and leaves the cluster
// in order only when none is left.
func TestLeavingGivesNothingBackTooEarly(t *testing.T) {
	for name, ends := range map[string]bool{"broken off in time": true, "never ends": false} {
		t.Run(name, func(t *testing.T) {
			n := start(t, alone(t))
			slot, err := n.Acquire(t.Context(), admission.Request{Pool: "p"})
			if err != nil {
				t.Fatal(err)
			}
			member := func() bool {
				_, in := n.peers.cluster.Self()
				return in
			}
			released := make(chan struct{})
			slot.OnLost(func() {
				go func() {
					defer close(released)
					time.Sleep(300 * time.Millisecond) // until its connection is closed
					if !member() {
						t.Error("the slot was given back while it was in use")
					}
					if ends {
						slot.Release()
					}
				}()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := n.Drain(ctx); err == nil {
				t.Error("drained with a slot in use")
			}
			n.LeaveCluster()
			<-released
			if in := member(); in == ends {
				t.Errorf("in the agreed view afterwards: %t", in)
			}
		})
	}
}
