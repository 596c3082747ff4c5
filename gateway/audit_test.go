package gateway

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
)

// A fault counts when three counts in a row find the same one.
func TestCounts(t *testing.T) {
	whole := []holdings{{Epoch: 1, Free: kmutex.NewTokenSet(2)}, {Epoch: 1, Running: []kmutex.Grant{{Ticket: 5, Token: 2}}}}
	without := []holdings{{Epoch: 1, Free: kmutex.NewTokenSet(2)}, {Epoch: 1}}
	doubled := []holdings{
		{Epoch: 1, Free: kmutex.NewTokenSet(1), Running: []kmutex.Grant{{Ticket: 5, Token: 1}}},
		{Epoch: 1, Running: []kmutex.Grant{{Ticket: 7, Token: 1}, {Ticket: 8, Token: 2}}},
	}
	for _, c := range []struct {
		name   string
		k      int
		counts [][]holdings
		want   []kmutex.Token
	}{
		{"whole", 3, [][]holdings{whole, whole, whole, whole}, nil},
		{"on its way now and then", 3, [][]holdings{without, without, whole, without, without}, nil},
		{"lost", 3, [][]holdings{whole, without, without, without}, []kmutex.Token{2}},
		{"withheld on purpose", 0, [][]holdings{without, without, without}, nil},
		{"doubled", 3, [][]holdings{doubled, doubled, doubled}, []kmutex.Token{1}},
		{"doubled, while some are withheld", 0, [][]holdings{doubled, doubled, doubled}, []kmutex.Token{1}},
	} {
		var n count
		var got []kmutex.Token
		for _, all := range c.counts {
			got = n.take(1, kmutex.NewTokenSet(c.k), all)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A token that is lost by a defect comes back by itself.
func TestLostTokenComesBack(t *testing.T) {
	bindings(t, func(t *testing.T, binding string) {
		f := newFleet(t, 3, 2, binding, time.Millisecond, PoolConfig{})
		n := f.gateways[2]
		s, err := n.Acquire(t.Context(), Ask{Pool: testPool, Wait: NoTimeout})
		if err != nil {
			t.Fatal(err)
		}
		// The gateway forgets the token: nobody ever returns it.
		p := n.pool(testPool)
		p.mu.Lock()
		fresh := kmutex.New(p.self, newBinding(binding))
		if _, err := fresh.Step(kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(1, 2, 1, p.self)}); err != nil {
			t.Fatal(err)
		}
		p.machine = fresh
		delete(p.slots, s.ticket)
		p.inFlight, p.requests = 0, 0
		p.mu.Unlock()

		time.Sleep((auditStrikes + 1) * auditEvery)
		synctest.Wait()
		var in gauge
		for range 2 {
			go func() {
				if err := hold(t.Context(), f.gateways[3], &in, time.Minute); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Second)
		if got := in.now.Load(); got != 2 {
			t.Errorf("%d in the critical section, k=2", got)
		}
		if got := f.view.Pools[0].Epoch; got != 2 {
			t.Errorf("epoch %d, want one after the first", got)
		}
		time.Sleep(time.Minute)
		f.check()
	})
}

// While tokens only move, nothing is suspected.
func TestAuditIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 3, membership.BindingLate, 100*time.Millisecond, PoolConfig{})
		var in gauge
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, n := range f.all() {
					if err := hold(t.Context(), n, &in, 30*time.Millisecond); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		time.Sleep(5 * time.Minute)
		close(stop)
		<-done
		if got := f.view.Pools[0].Epoch; got != 1 {
			t.Errorf("%d needless epochs", got-1)
		}
		f.check()
	})
}
