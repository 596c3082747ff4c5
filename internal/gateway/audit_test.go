package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// A token that is lost by a defect comes back by itself.
func TestLostTokenComesBack(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 2, binding, time.Millisecond, PoolConfig{})
		n := f.gateways[2]
		s := slotAt(t, n)
		var in gauge
		for range 2 { // one of them waits for the token of s
			go func() {
				if err := hold(t.Context(), f.gateways[3], &in, 20*time.Second); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Second)
		f.mu.Lock()
		f.drop = func(m kmutex.Message) bool {
			lost := m.Kind == kmutex.KindToken || m.Kind == kmutex.KindTokens
			if lost {
				f.drop = nil
			}
			return lost
		}
		f.mu.Unlock()
		s.Release()
		time.Sleep(time.Second)
		if got := in.now.Load(); got != 1 {
			t.Fatalf("%d in the critical section although a token is lost", got)
		}
		time.Sleep(5 * 2 * time.Second) // three counts, after one before which it was used
		if got := in.now.Load(); got != 2 {
			t.Errorf("%d in the critical section, k=2", got)
		}
		if got := f.gateways[1].View().Pools[0].Epoch; got != 2 {
			t.Errorf("epoch %d, want one after the first", got)
		}
		time.Sleep(time.Minute)
		f.check()
	})
}

// While tokens only move, nothing is suspected.
func TestAuditIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 3, admission.BindingLate, 100*time.Millisecond, PoolConfig{})
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
