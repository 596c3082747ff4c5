package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// gauge counts who is in the critical section.
type gauge struct{ now, max atomic.Int64 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for m := g.max.Load(); n > m && !g.max.CompareAndSwap(m, n); m = g.max.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// hold acquires, stays for d and releases.
func hold(ctx context.Context, n *node, g *gauge, d time.Duration) error {
	s, err := n.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1})
	if err != nil {
		return err
	}
	g.enter()
	time.Sleep(d)
	g.leave()
	s.Release()
	return nil
}

func bindings(t *testing.T, f func(t *testing.T, binding admission.Binding)) {
	for _, b := range []admission.Binding{admission.BindingLate, admission.BindingEarly} {
		t.Run(string(b), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, b) })
		})
	}
}

func TestNeverMoreThanKAndEverybodyGetsIn(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 4, binding, time.Millisecond, PoolConfig{})
		var in gauge
		var wg sync.WaitGroup
		for i, n := range f.all() {
			for c := range 30 - 12*i { // skewed
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					for range 20 {
						if err := hold(t.Context(), n, &in, time.Duration(r.IntN(20))*time.Millisecond); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if got := in.max.Load(); got != 4 {
			t.Errorf("most in the critical section: %d, want exactly k=4", got)
		}
		f.check()
	})
}

// Clients that leave in every state leave nothing behind.
func TestClientsThatComeAndGo(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 3, binding, time.Millisecond, PoolConfig{})
		var in gauge
		var wg sync.WaitGroup
		for i, n := range f.all() {
			for c := range 100 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					for range 10 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Millisecond)
						err := hold(ctx, n, &in, time.Duration(r.IntN(5))*time.Millisecond)
						if err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						cancel()
					}
				})
			}
		}
		wg.Wait()
		if got := in.max.Load(); got > 3 {
			t.Errorf("most in the critical section: %d, k=3", got)
		}
		f.check()
	})
}

// A grant that meets a caller who leaves goes on to the next in line.
func TestGrantMeetsCancel(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 2, 1, binding, 10*time.Millisecond, PoolConfig{})
		all := f.all()
		first := slotAt(t, all[0])
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if s, err := all[1].Acquire(ctx, admission.Request{Pool: testPool, Wait: -1}); err == nil {
				s.Release()
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		time.Sleep(100 * time.Millisecond)
		wg.Go(func() {
			s, err := all[1].Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			if err != nil {
				t.Error(err)
				return
			}
			s.Release()
		})
		time.Sleep(100 * time.Millisecond)
		first.Release()
		time.Sleep(10 * time.Millisecond) // the token arrives now
		cancel()
		wg.Wait()
		f.check()
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{QueueLimit: 1})
		n := f.all()[0]
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: "nonsense", Wait: -1}); !errors.Is(err, admission.ErrUnknownPool) {
			t.Errorf("unknown pool: %v", err)
		}
		s := slotAt(t, n)
		began := time.Now()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: time.Second}); !errors.Is(err, admission.Timeout) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Draining) {
				t.Errorf("waiting while drained: %v", err)
			}
		})
		synctest.Wait()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.QueueFull) {
			t.Errorf("line full: %v", err)
		}
		wg.Go(func() {
			if err := n.Drain(t.Context(), false); err != nil {
				t.Error(err)
			}
			if got := n.Status(testPool).InFlight; got != 0 {
				t.Errorf("drained with %d in flight", got)
			}
		})
		synctest.Wait()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Draining) {
			t.Errorf("draining: %v", err)
		}
		s.Release()
		s.Release()
		wg.Wait()
		f.check()
	})
}

func TestIsolatedUntilInTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		n := f.start()
		n.Follow()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Isolated) {
			t.Errorf("got %v", err)
		}
		n.stop()
	})
}

// A gateway that has been taken out of the view admits nothing more, also nobody
// who waits already.
func TestTakenOutOfTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		all := f.all()
		s := slotAt(t, all[0])
		waiting := make(chan error)
		go func() {
			_, err := all[1].Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			waiting <- err
		}()
		time.Sleep(time.Second)
		f.leave(2, 1)
		if err := <-waiting; !errors.Is(err, admission.Isolated) {
			t.Errorf("waiting: %v", err)
		}
		if _, err := all[1].Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Isolated) {
			t.Errorf("new: %v", err)
		}
		s.Release()
		f.check()
	})
}

// A join pauses nobody, and the newcomer gets in.
func TestJoin(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 2, 1, binding, time.Millisecond, PoolConfig{})
		var in gauge
		var wg sync.WaitGroup
		use := func(n *node) {
			wg.Go(func() {
				for range 50 {
					if err := hold(t.Context(), n, &in, 3*time.Millisecond); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for _, n := range f.all() {
			use(n)
			use(n)
		}
		time.Sleep(20 * time.Millisecond)
		newcomer := f.join()
		newcomer.Follow() // before the others
		use(newcomer)
		f.follow()
		wg.Wait()
		if got := in.max.Load(); got != 1 {
			t.Errorf("most in the critical section: %d, k=1", got)
		}
		f.check()
	})
}

// When a gateway that is done leaves, the others form a new line: who runs
// goes on, who waits keeps waiting, and no token is missing.
func TestLeave(t *testing.T) {
	for _, leaver := range []kmutex.Node{1, 2, 3} {
		bindings(t, func(t *testing.T, binding admission.Binding) {
			f := newFleet(t, 3, 3, binding, time.Millisecond, PoolConfig{})
			var in gauge
			var wg sync.WaitGroup
			for _, n := range f.all() {
				self := n.self
				for range 10 {
					wg.Go(func() {
						for range 20 {
							err := hold(t.Context(), n, &in, 5*time.Millisecond)
							if errors.Is(err, admission.Draining) && self == leaver {
								return
							}
							if err != nil {
								t.Errorf("node %d: %v", self, err)
							}
						}
					})
				}
			}
			time.Sleep(100 * time.Millisecond)
			if err := f.gateways[leaver].Drain(t.Context(), false); err != nil {
				t.Error(err)
			}
			home := leaver%3 + 1
			f.leave(leaver, home)
			wg.Wait()
			if got := in.max.Load(); got != 3 {
				t.Errorf("most in the critical section: %d, want exactly k=3", got)
			}
			f.check()
		})
	}
}

// Epochs that begin while the one before is still being formed.
func TestLeaveAndLeave(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 4, 2, binding, time.Millisecond, PoolConfig{})
		var in gauge
		var wg sync.WaitGroup
		for _, n := range f.all()[2:] {
			for range 10 {
				wg.Go(func() {
					for range 20 {
						if err := hold(t.Context(), n, &in, 5*time.Millisecond); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(50 * time.Millisecond)
		f.leave(1, 2)
		f.leave(2, 3)
		wg.Wait()
		if got := in.max.Load(); got != 2 {
			t.Errorf("most in the critical section: %d, want exactly k=2", got)
		}
		f.check()
	})
}

// A client that leaves while an epoch is being formed is forgotten by the gateway
// and still in its frozen machine's report when the next epoch begins.
func TestClientLeavesBetweenEpochs(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 4, 1, binding, time.Millisecond, PoolConfig{})
		n := f.gateways[4]
		held := slotAt(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		gone, served := make(chan error), make(chan error)
		go func() { gone <- hold(ctx, n, new(gauge), 0) }()
		time.Sleep(time.Second)
		go func() { served <- hold(t.Context(), n, new(gauge), 0) }()
		time.Sleep(time.Second)

		f.takeOut(1, 3)
		n.Follow() // home has not seen the view, so the epoch stays unformed
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the client that left: %v", err)
		}
		f.leave(2, 3)
		held.Release()
		if err := <-served; err != nil {
			t.Error(err)
		}
		f.check()
	})
}

// A pool begins once all its gateways have its view, whichever has it first. Until then no gateway
// gets a message of it.
func TestPoolBegins(t *testing.T) {
	for first := range 2 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
			f.mu.Lock()
			f.view = &membership.View{
				Number: f.view.Number + 1, Members: f.view.Members,
				Pools: append(slices.Clone(f.view.Pools), membership.Pool{Name: "new", K: 1, Binding: admission.BindingLate, Epoch: 1, Began: 9, Home: 1}),
			}
			f.mu.Unlock()
			f.all()[first].Follow()
			done := make(chan error)
			go func() {
				s, err := f.all()[first].Acquire(t.Context(), admission.Request{Pool: "new", Wait: -1})
				if err == nil {
					s.Release()
				}
				done <- err
			}()
			time.Sleep(time.Second)
			select {
			case err := <-done:
				t.Errorf("the pool has begun before all know it: %v", err)
			default:
			}
			f.all()[1-first].Follow()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A letter about a pool that no view has explained here yet is not refused for good: it is sent again.
// No message is.
func TestBeforeItsView(t *testing.T) {
	if err := new(Gateway).ReceivePayload(2, poolTopic+"new", []byte("{}")); !errors.Is(err, transport.ErrNotYet) {
		t.Error(err)
	}
	m := kmutex.Message{Kind: kmutex.KindRequest, Epoch: 1, Origin: 2}
	if err := (&pools{drivers: map[string]*poolDriver{"old": nil}}).Deliver(2, "new", m); !errors.Is(err, admission.ErrUnknownPool) {
		t.Errorf("got %v", err)
	}
}
