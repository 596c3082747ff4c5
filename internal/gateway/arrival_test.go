package gateway

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// A request has arrived when its own goroutine has had the pool's lock, also where another
// one gives it its place in line: the order of arrival is not the scheduler's.
func TestArrivalIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		n := f.gateways[1]
		p := n.pool(testPool)
		held := slotAt(t, n)
		var caller atomic.Pointer[string]
		stamped := 0
		n.now = func() time.Time {
			if own := caller.Load(); own != nil && *own == goroutine() {
				stamped++
			}
			return time.Now()
		}
		for i := range 3 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				name := goroutine()
				caller.Store(&name)
				if err := (&Slot{pool: p}).enter(&admission.Request{Pool: testPool, Wait: -1}); err != nil {
					t.Error(err)
				}
			}()
			<-done
			if stamped == 0 {
				t.Errorf("request %d: another goroutine looks at the clock", i)
			}
			caller.Store(nil)
			stamped = 0
		}
		synctest.Wait()
		p.mu.Lock()
		if len(p.due) > 0 || len(p.slots) != 4 {
			t.Errorf("%d are due, %d have places", len(p.due), len(p.slots))
		}
		last := time.Time{}
		for i := kmutex.Request(1); i <= p.last; i++ {
			if s := p.slots[i]; s.since.Before(last) {
				t.Errorf("request %d came before the one that has the place before it", i)
			} else {
				last = s.since
			}
		}
		p.mu.Unlock()
		p.refuseWaiting(admission.Draining)
		held.Release()
		f.check()
	})
}

// goroutine names the caller's.
func goroutine() string {
	b := make([]byte, 64)
	return string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
}

// Who leaves before having a place in line leaves nothing behind, and the next one of its
// client comes in.
func TestLeavesBeforeItsPlace(t *testing.T) {
	for _, fair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{Fair: fair, QueueLimit: 10})
			n := f.gateways[1]
			p := n.pool(testPool)
			held := slotAt(t, n)
			var slots [3]Slot
			p.mu.Lock()
			for i := range slots {
				slots[i].pool = p
				if err := p.enqueue(&slots[i].claim, &admission.Request{Pool: testPool, Client: "a"}, nil); err != nil {
					t.Fatal(err)
				}
				slots[i].ready = make(chan struct{})
			}
			if all := len(p.due); all == 0 {
				t.Fatal("nobody is due")
			}
			p.placeSoon()
			p.release(&slots[0].claim) // before that
			p.mu.Unlock()
			held.Release()
			synctest.Wait()
			for i := 1; i < len(slots); i++ {
				select {
				case <-slots[i].ready:
				default:
					t.Fatalf("fair %t: request %d is not in", fair, i)
				}
				slots[i].Release()
			}
			f.check()
		})
	}
}

// A refusal for a client's bound tells the bound that was reached.
func TestClientBoundIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{ClientLimit: 5, ClientTickets: 2})
		n := f.gateways[1]
		ask := admission.Request{Pool: testPool, Client: "a", Counted: true, Wait: 0}
		limit := func(err error) int {
			var refusal *admission.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != admission.ClientLimit {
				t.Fatalf("got %v", err)
			}
			return refusal.Limit
		}
		var tickets []string
		for range 2 {
			tk, err := n.RequestTicket(t.Context(), ask, time.Minute, "")
			if err != nil {
				t.Fatal(err)
			}
			tickets = append(tickets, tk.ID)
		}
		if _, err := n.RequestTicket(t.Context(), ask, time.Minute, ""); limit(err) != 2 {
			t.Errorf("the bound on tickets is told as %d", limit(err))
		}
		p := n.pool(testPool)
		var slots []*Slot
		for range 4 { // one ticket waits
			s := &Slot{pool: p}
			err := s.enter(&ask)
			if err != nil {
				t.Fatal(err)
			}
			slots = append(slots, s)
		}
		if _, err := n.Acquire(t.Context(), ask); limit(err) != 5 {
			t.Errorf("the bound on requests is told as %d", limit(err))
		}
		for _, s := range slots {
			s.Release()
		}
		for _, id := range tickets {
			if err := n.EndTicket(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		f.check()
	})
}

// The answers about a line serve all who ask: they are whole, also if the first to ask
// leaves meanwhile.
func TestPositionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, 0, PoolConfig{})
		one, two := f.gateways[1], f.gateways[2]
		held := slotAt(t, one)
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go func() { _, _ = two.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1}) }()
		}
		time.Sleep(time.Second)
		first, leave := context.WithCancel(t.Context())
		synctest.Wait() // nobody reads the links any more
		one.links = leaving{one.links, leave}
		_, _ = one.Position(first, testPool, time.Now())
		if n, _ := one.Position(t.Context(), testPool, time.Now()); n != 4 {
			t.Errorf("position %d behind 3 at another gateway", n)
		}
		cancel()
		synctest.Wait()
		held.Release()
		f.check()
	})
}

// leaving ends the call that asks another gateway first.
type leaving struct {
	Links
	leave func()
}

// Call implements Links.
func (l leaving) Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error) {
	l.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.Links.Call(ctx, to, q)
}

// A pool may have any name: what is logged about it keeps nothing else from the log.
func TestPoolNamedDisk(t *testing.T) {
	g := New(Config{Observer: noObserver{}})
	defer g.cancel()
	p := newPool(&g.env, "disk", g.memoryOf("disk"))
	p.out.isMissed(&kmutex.Envelope{}, errSilent)
	if !g.losses.First("disk") {
		t.Error("an error of the disk is not logged")
	}
}
