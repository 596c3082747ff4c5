package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// endedContext returns a context that is over.
func endedContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// BreakOff without Drain lets nobody in afterwards, and reaches those who were granted a
// slot before it, once each.
func TestBreakOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 2, admission.BindingLate, 0, PoolConfig{})
		n := f.gateways[1]
		calls := 0
		lost := lossFunc(func() { calls++ })
		one, other := slotAt(t, n, lost), slotAt(t, n, lost)
		waiting := make(chan error, 1)
		go func() {
			_, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			waiting <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := n.BreakOff(endedContext(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("with slots in use: %v", err)
			}
		}
		if err := <-waiting; !errors.Is(err, admission.Draining) {
			t.Errorf("waiting: %v", err)
		}
		if calls != 2 {
			t.Errorf("told %d times that the two slots are lost", calls)
		}
		one.Release()
		other.Release()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Draining) {
			t.Errorf("let in after BreakOff: %v", err)
		}
		if err := n.BreakOff(endedContext(t)); err != nil {
			t.Errorf("with nobody left: %v", err)
		}
	})
}

// Close alone lets nobody in afterwards: nobody watches the lease.
func TestNobodyComesInAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		n := f.gateways[1]
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Draining) {
			t.Errorf("let in after Close: %v", err)
		}
	})
}

// Drain that lets those who wait be served ends when the lease does: they are refused then.
func TestDrainEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		s, n := slotAt(t, f.gateways[1]), f.gateways[2]
		waiting, drained := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			waiting <- err
		}()
		synctest.Wait()
		go func() { drained <- n.Drain(t.Context(), true) }()
		synctest.Wait()
		n.isolate(time.Second)
		if err := <-waiting; !errors.Is(err, admission.Isolated) {
			t.Errorf("waiting: %v", err)
		}
		synctest.Wait()
		select {
		case err := <-drained:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it waits for requests that were refused")
		}
		s.Release()
	})
}

// A gateway that ends lets nobody wait for long, whether it waits already or comes then. A slot
// that is free is given, though its token is at another gateway.
func TestWaitNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, 10*time.Millisecond, PoolConfig{})
		s, n := slotAt(t, f.gateways[1]), f.gateways[2]
		refused := func() {
			t.Helper()
			if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Draining) {
				t.Errorf("no slot is free: %v", err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(refused)
		synctest.Wait()
		began := time.Now()
		n.WaitNoMore()
		wg.Wait()
		refused()
		if took := time.Since(began); took != 2*lastWait {
			t.Errorf("two were refused after %v", took)
		}
		if _, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, ""); !errors.Is(err, admission.Draining) {
			t.Errorf("a ticket: %v", err)
		}
		s.Release()
		slotAt(t, n).Release()
		f.check()
	})
}

func slotAt(t *testing.T, n *node, lost ...lossFunc) *Slot {
	t.Helper()
	req := admission.Request{Pool: testPool, Wait: -1}
	for _, f := range lost {
		req.Holder = f
	}
	s, err := n.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// redeemedAt returns a request at one gateway on the slot of a ticket of another one.
func redeemedAt(t *testing.T, user, owner *node, lost lossFunc) *Redeemed {
	t.Helper()
	tk := request(t, owner, time.Minute)
	r, err := user.redeem(t.Context(), testPool, tk.ID, lost)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request on a ticket's slot is in flight at its gateway, wherever the ticket is: Drain
// waits for it, and a draining gateway redeems no other.
func TestDrainWaitsForRedeemed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
		owner, user := f.gateways[1], f.gateways[2]
		r := redeemedAt(t, user, owner, nil)
		other := request(t, owner, time.Minute)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			if err := user.Drain(t.Context(), false); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drained while a request uses a ticket's slot")
		default:
		}
		if second, err := user.redeem(t.Context(), testPool, other.ID, nil); err == nil {
			t.Error("redeemed while draining")
			second.Release()
		} else if !errors.Is(err, admission.Draining) {
			t.Error(err)
		}
		r.Release()
		<-drained
		s, err := owner.redeem(t.Context(), testPool, other.ID, nil)
		if err != nil {
			t.Errorf("a ticket that was refused elsewhere: %v", err)
		} else {
			s.Release()
		}
		time.Sleep(time.Second)
		f.check()
	})
}

// BreakOff reaches a request on a ticket's slot, and so does the end of the lease, at
// once: before the ticket's time to live is over.
func TestRedeemedIsLostWithItsGateway(t *testing.T) {
	for _, lapse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
			owner, user := f.gateways[1], f.gateways[2]
			lost := make(chan time.Time, 2)
			r := redeemedAt(t, user, owner, func() { lost <- time.Now() })
			began, took := time.Now(), time.Duration(0)
			if lapse {
				took = time.Second
				user.isolate(took)
				f.suspend(user.self, owner.self)
			} else if err := user.BreakOff(endedContext(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("with a ticket's slot in use: %v", err)
			}
			select {
			case at := <-lost:
				if at.Sub(began) != took {
					t.Errorf("lapse %t: told after %v, want %v", lapse, at.Sub(began), took)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("lapse %t: not told", lapse)
			}
			if r.Valid() {
				t.Errorf("lapse %t: valid although it is lost", lapse)
			}
			r.Release()
			if err := user.BreakOff(endedContext(t)); err != nil {
				t.Errorf("lapse %t: with nobody left: %v", lapse, err)
			}
			if len(lost) > 0 {
				t.Errorf("lapse %t: told twice", lapse)
			}
			time.Sleep(2 * time.Minute) // the ticket expires
		})
	}
}
