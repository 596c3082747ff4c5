package node

import (
	"context"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// lossFunc is a Holder.
type lossFunc func()

func (f lossFunc) LoseSlot() { f() }

// A gateway whose requests do not end in time breaks them off, and leaves the cluster in order only
// when none is left.
func TestLeavingGivesNothingBackTooEarly(t *testing.T) {
	for name, ends := range map[string]bool{"broken off in time": true, "never ends": false} {
		t.Run(name, func(t *testing.T) {
			n := start(t, alone(t))
			member := func() bool {
				_, in := n.peers.cluster.Self()
				return in
			}
			released := make(chan struct{})
			var slot Slot
			err := n.AcquireInto(t.Context(), &slot, &admission.Request{Pool: "p", Holder: lossFunc(func() {
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
			})})
			if err != nil {
				t.Fatal(err)
			}
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

// TestDrained: tickets stay and do not count; requests that are to be served count.
func TestDrained(t *testing.T) {
	cfg := alone(t)
	cfg.ServeWaiting, cfg.Pools[0].K = true, 2
	n := start(t, cfg)
	if _, err := n.Tickets().RequestTicket(t.Context(), admission.Request{Pool: "p"}, time.Minute, ""); err != nil {
		t.Fatal(err)
	}
	slot := new(Slot)
	if err := n.AcquireInto(t.Context(), slot, &admission.Request{Pool: "p"}); err != nil {
		t.Fatal(err)
	}
	served := make(chan *Slot)
	go func() {
		s := new(Slot)
		if err := n.AcquireInto(t.Context(), s, &admission.Request{Pool: "p", Wait: -1}); err != nil {
			t.Error(err)
		}
		served <- s
	}()
	for n.Status("p").Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	drained := func() bool { return n.report.status().Gateway.Drained }
	n.drainOnly()
	slot.Release()
	slot = <-served
	time.Sleep(50 * time.Millisecond)
	if drained() {
		t.Error("drained with a request in flight")
	}
	slot.Release()
	for begun := time.Now(); !drained(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("never drained: %+v", n.Status("p"))
		}
	}
	if got := n.Status("p").InFlight; got != 1 {
		t.Errorf("%d slots in use, want the ticket's", got)
	}
}
