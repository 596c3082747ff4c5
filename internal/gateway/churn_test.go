package gateway

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
)

// work keeps clients of a gateway busy until stop is closed. A slot that is lost
// ends its critical section at once, as an aborted request does.
func work(t *testing.T, wg *sync.WaitGroup, n *node, g *gauge, clients int, stop <-chan struct{}, hold time.Duration) {
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-n.done:
					return
				default:
				}
				lost := make(chan struct{})
				s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Holder: lossFunc(func() { close(lost) })})
				if errors.Is(err, admission.Isolated) || errors.Is(err, admission.Draining) {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				g.enter()
				select {
				case <-time.After(hold):
				case <-lost:
				}
				g.leave()
				s.Release()
			}
		})
	}
}

// When a gateway is lost, the line moves on with the tokens that the others
// have, and all of them are back once its lease has run out.
func TestLostGateway(t *testing.T) {
	const lease = 3 * time.Second
	for _, lost := range []kmutex.Node{1, 2, 3} {
		bindings(t, func(t *testing.T, binding admission.Binding) {
			f := newFleet(t, 3, 3, binding, time.Millisecond, PoolConfig{})
			var in gauge
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for _, n := range f.all() {
				work(t, &wg, n, &in, 10, stop, 20*time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
			victim, home := f.gateways[lost], lost%3+1
			victim.isolate(lease) // it goes on with what it has until then
			f.suspend(lost, home)
			time.Sleep(5 * time.Millisecond) // reports and answers
			before := f.gateways[home].Status(testPool)
			if !before.Begun {
				t.Errorf("the line is still being formed: %+v", before)
			}
			time.Sleep(lease + lease/10)
			f.expire()
			time.Sleep(100 * time.Millisecond)
			got := in.now.Load()
			for range 20 { // a hand-over takes a moment, in which one is missing
				time.Sleep(time.Millisecond)
				got = max(got, in.now.Load())
			}
			if got != 3 {
				t.Errorf("in the critical section after the lost gateway's lease: %d, want k=3", got)
			}
			close(stop)
			wg.Wait()
			if got := in.max.Load(); got != 3 {
				t.Errorf("most in the critical section: %d, want exactly k=3", got)
			}
			f.check()
		})
	}
}

// When the lease lapses, waiting requests are refused and those in flight are
// aborted before anything else; the gateway comes back as another incarnation.
func TestLapsedLease(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 2, 1, binding, time.Millisecond, PoolConfig{})
		n := f.gateways[2]
		aborted := make(chan time.Time, 1)
		held := slotAt(t, n, func() { aborted <- time.Now() })
		waiting := make(chan error, 1)
		go func() {
			_, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			waiting <- err
		}()
		time.Sleep(time.Second)
		end := time.Now().Add(time.Second)
		n.isolate(time.Second)
		f.suspend(2, 1)
		time.Sleep(999 * time.Millisecond)
		if !held.Valid() {
			t.Error("not valid although the lease has not run out")
		}
		if at := <-aborted; !at.Equal(end) {
			t.Errorf("aborted %v after the end of the lease", at.Sub(end))
		}
		if err := <-waiting; !errors.Is(err, admission.Isolated) {
			t.Errorf("waiting: %v", err)
		}
		if held.Valid() {
			t.Error("valid without a lease")
		}
		held.Release()
		f.expire()
		n.heal()
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.Isolated) {
			t.Errorf("before it is let in again: %v", err)
		}
		f.letIn(n)
		f.follow()
		s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.Release()
		f.check()
	})
}

// A process that slept through the end of its lease admits nobody on waking,
// although it was granted a slot meanwhile.
func TestWakesUpWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		n := f.gateways[1]
		p := n.pool(testPool)
		s := slotAt(t, n)
		waiting := make(chan error, 1)
		go func() {
			_, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			waiting <- err
		}()
		synctest.Wait()
		// Until here the lease holds; nobody notices its end before the grant.
		f.mu.Lock()
		n.until = time.Now()
		f.mu.Unlock()
		s.Release()
		if err := <-waiting; !errors.Is(err, admission.Isolated) {
			t.Errorf("granted without a lease: %v", err)
		}
		if err := (&Slot{pool: p}).enter(new(admission.Request)); !errors.Is(err, admission.Isolated) {
			t.Errorf("admitted without a lease: %v", err)
		}
		n.Follow()
	})
}

// k changes under load: nobody is aborted, and what is in flight never exceeds
// the larger of both until the surplus has been released.
func TestChangeOfK(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 6, binding, time.Millisecond, PoolConfig{})
		var in gauge
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, n := range f.all() {
			work(t, &wg, n, &in, 20, stop, 100*time.Millisecond)
		}
		for _, k := range []int{12, 3, 6, 1, 6} {
			was := f.view.Pools[0].K
			in.max.Store(0)
			f.setK(k)
			time.Sleep(250 * time.Millisecond) // longer than any hold
			if got, limit := in.max.Load(), int64(max(k, was)); got > limit {
				t.Errorf("k %d -> %d: %d in the critical section", was, k, got)
			}
			in.max.Store(0)
			time.Sleep(time.Second)
			if got := in.max.Load(); got != int64(k) {
				t.Errorf("k=%d: most in the critical section: %d", k, got)
			}
		}
		close(stop)
		wg.Wait()
		f.check()
	})
}

// Everything at any moment: gateways are lost, come back, join and leave, k
// changes, epochs begin while others are being formed. Never more than k; and
// when it is over, everybody gets in and nothing is missing.
func TestChurn(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		bindings(t, func(t *testing.T, binding admission.Binding) { churn(t, uint64(seed), binding) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func churn(t *testing.T, seed uint64, binding admission.Binding) {
	const (
		k     = 3
		lease = 500 * time.Millisecond
	)
	r := rand.New(rand.NewPCG(seed, 1))
	f := newFleet(t, 3+r.IntN(3), k, binding, time.Millisecond, PoolConfig{})
	var in gauge
	var wg sync.WaitGroup
	stop := make(chan struct{})
	nodes := f.all()
	for _, n := range nodes {
		work(t, &wg, n, &in, 1+r.IntN(8), stop, time.Duration(1+r.IntN(40))*time.Millisecond)
	}
	var owing sync.WaitGroup
	for range 12 {
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		members := f.members()
		home := members[r.IntN(len(members))]
		switch what := r.IntN(5); {
		case what < 2 && len(members) > 2: // lost, and back when its lease has run out
			i := slices.Index(members, home)
			lost := f.gateways[members[(i+1)%len(members)]]
			self := lost.self
			lost.isolate(lease)
			f.suspend(self, home)
			owing.Go(func() {
				time.Sleep(lease + lease/10)
				f.pay(self)
				lost.uncut()
				f.letIn(lost)
				f.show()
			})
		case what == 2:
			n := f.join()
			f.show()
			work(t, &wg, n, &in, 3, stop, 10*time.Millisecond)
		case what == 3:
			f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.Home = home })
			f.show()
		default: // an epoch that only some have heard of
			f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.Home = home })
			for _, n := range f.all() {
				if r.IntN(2) == 0 {
					n.see()
				}
			}
		}
	}
	owing.Wait()
	f.show()
	time.Sleep(time.Second)
	if got := in.max.Load(); got > k {
		t.Errorf("most in the critical section: %d, k=%d", got, k)
	}
	in.max.Store(0)
	time.Sleep(time.Second)
	if got := in.max.Load(); got != k {
		t.Errorf("after the churn at most %d in the critical section, k=%d", got, k)
	}
	close(stop)
	wg.Wait()
	f.check()
}

// TestManyJoin: gateways that join begin, whoever has heard of them first, and however long one takes
// to follow a view.
func TestManyJoin(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		bindings(t, func(t *testing.T, binding admission.Binding) { manyJoin(t, uint64(seed), binding) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func manyJoin(t *testing.T, seed uint64, binding admission.Binding) {
	const k = 3
	r := rand.New(rand.NewPCG(seed, 2))
	f := newFleet(t, 2+r.IntN(3), k, binding, time.Millisecond, PoolConfig{})
	var in gauge
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, n := range f.all() {
		work(t, &wg, n, &in, 1+r.IntN(8), stop, time.Duration(1+r.IntN(40))*time.Millisecond)
	}
	pause := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}[r.IntN(4)]
	for range 12 {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		if members := f.members(); r.IntN(3) > 0 {
			work(t, &wg, f.join(), &in, 3, stop, 10*time.Millisecond)
		} else {
			home := members[r.IntN(len(members))]
			f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.Home = home })
		}
		all := f.all()
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, n := range all {
			n.pause.Store(int64(r.Float64() * float64(pause)))
			if r.IntN(3) > 0 {
				n.see()
			}
		}
	}
	f.show()
	time.Sleep(3 * time.Second)
	for _, n := range f.all() {
		if !n.Status(testPool).Begun {
			t.Errorf("gateway %d has not begun", n.self)
		}
	}
	if got := in.max.Load(); got > k {
		t.Errorf("most in the critical section: %d, k=%d", got, k)
	}
	if t.Failed() { // a new epoch frees the clients that are stuck
		f.nextEpoch(func(*membership.View, *membership.Pool) {})
		f.show()
	}
	close(stop)
	wg.Wait()
	f.check()
}

// members returns the incarnations in the newest view.
func (f *fleet) members() []kmutex.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var nodes []kmutex.Node
	for _, m := range f.view.Members {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// A gateway that has not seen yet that another one joined still answers its
// requests: what it sends it goes out when the view is there.
func TestMessageToOneThatIsToCome(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 1, binding, time.Millisecond, PoolConfig{})
		home, late := f.gateways[1], f.gateways[2]
		// The second gateway is last in line: requests end there.
		held := slotAt(t, late)
		newcomer := f.join()
		home.Follow()
		f.gateways[3].Follow()
		newcomer.Follow()
		var in gauge
		done := make(chan error)
		go func() { done <- hold(t.Context(), newcomer, &in, 0) }()
		time.Sleep(time.Second)
		held.Release() // the baton is to go to somebody whom nobody here knows
		time.Sleep(time.Second)
		late.Follow()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := f.view.Pools[0].Epoch; got != 1 {
			t.Errorf("epoch %d: an audit had to mend it", got)
		}
		f.check()
	})
}

// While what a lapsed incarnation had in flight is still being ended, it is not
// taken up again, although the views name it yet.
func TestLapsedIsNotTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		n := f.gateways[2]
		held := slotAt(t, n)
		n.isolate(time.Second)
		time.Sleep(2 * time.Second) // it is told to end, and takes its time
		n.Follow()
		if n.pool(testPool) != nil {
			t.Error("the lapsed incarnation has pools again")
		}
		if got := n.Standing().Node; got != 2 {
			t.Errorf("node %d has come back before everything had ended", got)
		}
		f.suspend(2, 1)
		held.Release()
		synctest.Wait()
		if got := n.Standing().Node; got != 0 {
			t.Errorf("still node %d", got)
		}
		n.uncut()
		time.Sleep(5 * time.Second) // what dials gives up
	})
}
