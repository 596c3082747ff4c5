package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// acquire asks for client and reports when it is in or has failed.
func acquire(t *testing.T, n *node, client string) (s *Slot, waited time.Duration) {
	t.Helper()
	began := time.Now()
	s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Client: client})
	if err != nil {
		t.Errorf("client %s at node %d: %v", client, n.self, err)
		return nil, 0
	}
	return s, time.Since(began)
}

// One client with a thousand requests at one gateway, and nine with one each, at
// the same one and at others: in the order fair nobody of the nine waits for
// longer than twice a round of the ten takes.
func TestFairTakesTurns(t *testing.T) {
	const (
		k    = 2
		hold = 20 * time.Millisecond
		most = 2 * hold * 10 / k
	)
	for gateways, fair := range map[int]bool{1: true, 3: true, 2: false} {
		t.Run(fmt.Sprintf("%d gateways, fair %t", gateways, fair), func(t *testing.T) {
			bindings(t, func(t *testing.T, binding admission.Binding) {
				f := newFleet(t, gateways, k, binding, 100*time.Microsecond, PoolConfig{Fair: fair})
				all := f.all()
				stop := make(chan struct{})
				var hog, others sync.WaitGroup
				use := func(n *node, client string) time.Duration {
					s, waited := acquire(t, n, client)
					if s != nil {
						time.Sleep(hold)
						s.Release()
					}
					return waited
				}
				for range 1000 {
					hog.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
								use(all[0], "hog")
							}
						}
					})
				}
				synctest.Wait()
				longest := make([]time.Duration, 9)
				for i := range longest {
					others.Go(func() {
						for range 20 {
							longest[i] = max(longest[i], use(all[i%gateways], fmt.Sprint("client ", i)))
						}
					})
				}
				others.Wait()
				close(stop)
				hog.Wait()
				if got := slices.Max(longest); (got <= most) != fair {
					t.Errorf("longest wait of the nine %v, in a fair order at most %v", got, most)
				}
				f.check()
			})
		})
	}
}

// A client has as many requests waiting as it may, whatever the others have; one
// that gets in or leaves makes room.
func TestClientLimit(t *testing.T) {
	for _, fair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{ClientLimit: 5, Fair: fair})
			n := f.all()[0]
			slots := make(chan *Slot, 20)
			wait := func(ctx context.Context, client string) {
				go func() {
					if s, err := n.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1, Client: client}); err == nil {
						slots <- s
					}
				}()
				synctest.Wait()
			}
			refused := func() bool {
				s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Client: "hog"})
				if err == nil {
					s.Release()
				}
				return errors.Is(err, admission.ClientLimit)
			}
			ctx, cancel := context.WithCancel(t.Context())
			wait(t.Context(), "hog") // is in at once
			for range 4 {
				wait(t.Context(), "hog")
			}
			if refused() {
				t.Error("refused with four waiting")
			}
			wait(ctx, "hog")
			if !refused() {
				t.Error("not refused with five waiting")
			}
			if _, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: "hog"}, time.Minute, ""); !errors.Is(err, admission.ClientLimit) {
				t.Errorf("a ticket: %v", err)
			}
			for _, other := range []string{"other", "", "", "", "", "", ""} {
				wait(t.Context(), other)
			}
			if got := n.Status(testPool).Waiting; got != 12 {
				t.Errorf("%d wait", got)
			}
			cancel()
			synctest.Wait()
			if refused() {
				t.Error("refused although one has left")
			}
			for range 12 {
				(<-slots).Release()
				synctest.Wait()
				if refused() {
					t.Error("refused although one is in")
				}
			}
			f.check()
			if p := n.pool(testPool); len(p.clients) > 0 || len(p.slots) > 0 {
				t.Errorf("left behind: %v, %v", p.clients, p.slots)
			}
		})
	}
}

// The requests of one client come in as they arrived, no matter which of them leave; a
// place in line that one leaves is the next one's.
func TestPlaceIsHandedOn(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 2, 1, binding, time.Millisecond, PoolConfig{Fair: true})
		f.heirs = true
		here, there := f.gateways[1], f.gateways[2]
		first, _ := acquire(t, here, "a")
		var order []int
		var wg sync.WaitGroup
		var cancels []context.CancelFunc
		use := func(n *node, client string, number int) {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			wg.Go(func() {
				s, err := n.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1, Client: client})
				if err == nil {
					order = append(order, number)
					s.Release()
				}
			})
			time.Sleep(time.Second)
		}
		for i := range 6 {
			use(here, "a", i) // the first has a place, the others are behind
		}
		use(there, "b", 10)
		use(here, "", 20) // not counted apart
		tk, err := here.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: "a"}, 10*time.Minute, "")
		if err != nil || tk.Granted {
			t.Fatal(tk, err)
		}
		for _, leaver := range []int{0, 1, 3} { // at the head, at the head again, and in the middle
			cancels[leaver]()
			synctest.Wait()
		}
		first.Release()
		time.Sleep(time.Second)
		if tk, err = there.TestTicket(t.Context(), tk.ID, false, time.Minute); err != nil || !tk.Granted {
			t.Errorf("the ticket behind all others of its client: %+v %v", tk, err)
		}
		if err := there.EndTicket(t.Context(), tk.ID); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if want := []int{2, 10, 20, 4, 5}; !slices.Equal(order, want) {
			t.Errorf("came in as %v, want %v", order, want)
		}
		f.check()
	})
}

// The order changes while many wait: in the order fifo again, all come in as they
// arrived.
func TestOrderChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{Fair: true})
		n := f.all()[0]
		first, _ := acquire(t, n, "a")
		var order []int
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				s, _ := acquire(t, n, string("aab"[i%3]))
				order = append(order, i)
				time.Sleep(time.Second)
				s.Release()
			})
			time.Sleep(time.Millisecond)
		}
		configure := func(fair bool) { n.Configure(map[string]PoolConfig{testPool: {Fair: fair}}) }
		configure(false)
		configure(true) // who has a place keeps it
		first.Release()
		wg.Wait()
		if want := []int{0, 2, 1, 3, 4, 5, 6, 7, 8}; !slices.Equal(order, want) {
			t.Errorf("came in as %v, want %v", order, want)
		}
		f.check()
	})
}

// Clients that are told apart come and go while gateways leave, lapse and come
// back and k changes: nobody is lost, no place, and never more than k are in.
func TestFairUnderChurn(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		const k = 3
		f := newFleet(t, 4, k, binding, time.Millisecond, PoolConfig{Fair: true, ClientLimit: 20})
		var in gauge
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i, n := range f.all() {
			for c := range 60 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(400))*time.Millisecond)
						s, err := n.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1, Client: string("aaabc"[r.IntN(5)])})
						if err == nil {
							in.enter()
							time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
							in.leave()
							s.Release()
						} else {
							time.Sleep(10 * time.Millisecond)
						}
						cancel()
					}
				})
			}
		}
		time.Sleep(time.Second)
		f.setK(1)
		time.Sleep(time.Second)
		f.setK(k)
		gone := f.gateways[4]
		if err := gone.Drain(t.Context(), false); err != nil {
			t.Error(err)
		}
		f.leave(4, 1)
		time.Sleep(time.Second)
		lapsed := f.gateways[2]
		lapsed.isolate(time.Second)
		f.suspend(2, 3)
		time.Sleep(2 * time.Second)
		f.expire()
		lapsed.heal()
		f.letIn(lapsed)
		f.follow()
		time.Sleep(time.Second)
		close(stop)
		wg.Wait()
		if got := in.max.Load(); got != k {
			t.Errorf("most in the critical section: %d, want exactly k=%d", got, k)
		}
		f.check()
		for _, n := range f.all() {
			p := n.pool(testPool)
			if p != nil && (len(p.clients) > 0 || p.waiting != 0) {
				t.Errorf("node %d: %d clients, %d waiting left behind", n.self, len(p.clients), p.waiting)
			}
		}
	})
}

// A client holds as many slots as it may, with requests and tickets; its others wait
// and let others pass, and each slot that it gives back lets its next one in, in
// the order of arrival.
func TestClientInFlight(t *testing.T) {
	for _, fair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const k, limit = 8, 3
			f := newFleet(t, 1, k, admission.BindingLate, 0, PoolConfig{ClientInFlight: limit, Fair: fair})
			n := f.all()[0]
			got := make(chan int, 20)
			slots := make(map[int]*Slot)
			var mu sync.Mutex
			ask := func(i int, client string) {
				go func() {
					if s, _ := acquire(t, n, client); s != nil {
						mu.Lock()
						slots[i] = s
						mu.Unlock()
						got <- i
					}
				}()
				synctest.Wait()
			}
			for i := range limit + 3 {
				ask(i, "hog")
			}
			for i := range k - limit {
				ask(10+i, fmt.Sprint("other ", i))
			}
			if s := n.Status(testPool); s.InFlight != k || s.Waiting != 3 || len(got) != k {
				t.Fatalf("in flight %d, waiting %d", s.InFlight, s.Waiting)
			}
			for range k {
				<-got
			}
			slots[10].Release() // a slot is free, and not for the hog
			synctest.Wait()
			if s := n.Status(testPool); s.InFlight != k-1 || s.Waiting != 3 {
				t.Errorf("in flight %d, waiting %d", s.InFlight, s.Waiting)
			}
			for i := range 3 {
				slots[i].Release()
				synctest.Wait()
				if in := <-got; in != limit+i {
					t.Errorf("request %d is in, want %d", in, limit+i)
				}
			}
			// Its tickets count, too, and leaving makes no room for more.
			tk, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: "hog"}, time.Minute, "")
			if err != nil || tk.Granted {
				t.Errorf("ticket %+v, %v", tk, err)
			}
			n.Configure(map[string]PoolConfig{testPool: {ClientInFlight: limit + 1, Fair: fair}})
			if tk := test(t, n, tk.ID); !tk.Granted {
				t.Errorf("with a higher limit: %+v", tk)
			}
			if err := n.EndTicket(t.Context(), tk.ID); err != nil {
				t.Error(err)
			}
			for _, s := range slots {
				s.Release()
			}
			f.check()
			if p := n.pool(testPool); len(p.clients) > 0 || len(p.slots) > 0 {
				t.Errorf("left behind: %v, %v", p.clients, p.slots)
			}
		})
	}
}
