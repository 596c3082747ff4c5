package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// leaseCounter counts lost leases.
type leaseCounter struct {
	noObserver
	lost atomic.Int64
}

func (c *leaseCounter) LeaseLost() { c.lost.Add(1) }

// A gateway that leaves in order has lost no lease and does not come back; one
// that is suspended has, also while it drains.
func TestLeaveIsNoLoss(t *testing.T) {
	for name, tc := range map[string]struct {
		drain, stops, suspended bool
		lost                    int64
	}{
		"left":                      {drain: true},
		"suspended while it drains": {drain: true, suspended: true, lost: 1},
		"suspended":                 {suspended: true, lost: 1},
		// As when the leader refuses it a lease before it has the view.
		"suspended while it stops": {drain: true, stops: true, suspended: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
				g := f.gateways[2]
				var count leaseCounter
				var logs bytes.Buffer
				g.cfg.Observer, g.cfg.Logger = &count, slog.New(slog.NewTextHandler(&logs, nil))
				// Its tickets go on at its successor: the last one waits.
				for range 3 {
					if _, err := g.RequestTicket(t.Context(), admission.Request{Pool: testPool, Wait: -1}, time.Minute, ""); err != nil {
						t.Fatal(err)
					}
				}
				if tc.drain {
					if err := g.Drain(t.Context(), false); err != nil {
						t.Fatal(err)
					}
				}
				if tc.stops {
					if err := g.BreakOff(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if tc.suspended {
					f.suspend(2, 1)
				} else {
					f.leave(2, 1)
				}
				if n := count.lost.Load(); n != tc.lost {
					t.Errorf("%d leases lost, want %d", n, tc.lost)
				}
				if said := strings.Contains(logs.String(), "level=WARN"); said != (tc.lost > 0) {
					t.Errorf("logged: %s", logs.String())
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if back := g.self == 0; back != (tc.lost > 0) {
					t.Errorf("wants to come back: %v", back)
				}
			})
		})
	}
}

// A gateway whose lease has lapsed does not come back while a request that it had
// in flight has not ended: its tokens would be given to others too early.
func TestComesBackWithNothingInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		g := f.gateways[2]
		s := slotAt(t, g)
		back := func() bool {
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			return g.self == 0
		}
		g.isolate(time.Second)
		f.suspend(2, 1)
		time.Sleep(time.Minute)
		if back() {
			t.Error("it came back with a request in flight")
		}
		s.Release()
		if !back() {
			t.Error("it does not come back")
		}
	})
}
