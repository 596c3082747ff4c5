package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// losses loses the owner of a ticket again and again.
type losses struct {
	every time.Duration // from one to the next
	found time.Duration // the others notice each after
	back  time.Duration // the gateway, or another one in its place, takes part again after
	same  bool          // it is the same one
}

// TestAbandonedThroughLosses: the slot of a ticket whose holder is gone is free after a while, however
// often its owners are lost meanwhile; so is one that its holder keeps, when its hold is over. The next
// in line, whose holder goes on asking, keeps its place.
func TestAbandonedThroughLosses(t *testing.T) {
	for name, c := range map[string]struct {
		gateways int
		losses
	}{
		"killed every 4 s":       {3, losses{4 * time.Second, 300 * time.Millisecond, time.Second, false}},
		"killed every 6.5 s":     {3, losses{6500 * time.Millisecond, 300 * time.Millisecond, time.Second, false}},
		"killed every 8 s":       {3, losses{8 * time.Second, 300 * time.Millisecond, time.Second, false}},
		"stopped 2 s of every 5": {3, losses{5 * time.Second, 1800 * time.Millisecond, 2 * time.Second, true}},
		"alone, down 2 s of 5":   {1, losses{5 * time.Second, 2 * time.Second, 2 * time.Second, true}},
	} {
		for _, hold := range []time.Duration{0, 15 * time.Second} {
			t.Run(fmt.Sprintf("%s, hold.max %v", name, hold), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { c.run(t, c.gateways, hold) })
			})
		}
	}
}

// run has a ticket that is never renewed; if it has a longest hold, always.
func (c losses) run(t *testing.T, gateways int, hold time.Duration) {
	const ttl, lease, longest = 6 * time.Second, 3 * time.Second, 5 * time.Minute
	f := newFleet(t, gateways, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
	f.heirs, f.view.Lease = true, lease
	first := f.all()[0]
	holds, err := first.RequestTicket(t.Context(), admission.Request{Pool: testPool, HoldMax: hold}, ttl, "")
	if err != nil || !test(t, first, holds.ID).Granted {
		t.Fatal(holds, err)
	}
	next, began := request(t, first, ttl), time.Now()
	owner, _ := replication.ParseID(holds.ID)
	stop := make(chan struct{})
	lost := make(chan int)
	go func() { lost <- f.loseOwners(owner, c, stop) }()
	for granted := false; !granted && time.Since(began) < longest; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if hold > 0 {
			_, _ = f.serving().RenewTicket(ctx, holds.ID) // until it ends
		}
		tk, err := f.serving().RenewTicket(ctx, next.ID)
		cancel()
		if e := (*admission.EndedError)(nil); errors.As(err, &e) {
			t.Fatalf("the next in line ends: %v", err)
		}
		granted = err == nil && tk.Granted
	}
	took := time.Since(began)
	close(stop)
	n := time.Duration(<-lost)
	most := max(pool.KeepFor(ttl), hold) + f.view.LeaseWait() + pool.KeepFor(ttl) + n*(c.found+1100*time.Millisecond)
	t.Logf("the slot is free after %v and %d losses, at most %v", took, n, most)
	if took > most {
		t.Errorf("the slot is free after %v and %d losses, want at most %v", took, n, most)
	}
}

// loseOwners loses who answers for a gateway's tickets, as c says, until stop; it returns how often.
func (f *fleet) loseOwners(of kmutex.Node, c losses, stop <-chan struct{}) (n int) {
	wait := f.view.LeaseWait()
	for time.Sleep(c.every / 2); ; n++ {
		began := time.Now()
		self, _ := f.view.Successor(of)
		down := f.gateways[self]
		alone := len(f.view.Members) == 1
		down.isolate(f.view.Lease)
		time.Sleep(c.found)
		if !alone {
			f.suspend(self, f.homeBut(down))
		}
		time.Sleep(c.back - c.found)
		switch {
		case !c.same:
			f.join()
		case alone:
			down.uncut()
			f.letIn(down)
			f.suspend(self, down.self)
		default:
			down.heal()
			f.letIn(down)
		}
		f.follow()
		time.Sleep(time.Until(began.Add(wait)))
		f.expire()
		select {
		case <-time.After(time.Until(began.Add(c.every))):
		case <-stop:
			return n + 1
		}
	}
}

// serving returns a gateway that takes part.
func (f *fleet) serving() *node {
	for _, n := range f.all() {
		f.mu.Lock()
		_, in := f.view.Member(n.self)
		in = in && !n.cut
		f.mu.Unlock()
		if in {
			return n
		}
	}
	return f.all()[0]
}
