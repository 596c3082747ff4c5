package gateway

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// A message that one request waits for is sent alone; while several wait, messages may
// share a write.
func TestSendsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, interval = 4 * time.Millisecond, 12 * 4 * time.Millisecond // see askInterval
		f := newFleet(t, 3, 1, admission.BindingLate, delay, PoolConfig{})
		first, second, third := f.all()[0], f.all()[1], f.all()[2]
		asks := func() (all, alone int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return second.asks, second.alone
		}
		for range 3 {
			slotAt(t, first).Release()
			slotAt(t, second).Release()
			time.Sleep(2 * interval)
		}
		before, alone := asks()
		if before == 0 || alone != before {
			t.Errorf("one request at a time: %d of %d asks were sent alone", alone, before)
		}

		held := slotAt(t, first)
		var wg sync.WaitGroup
		wait := func(n *node) {
			wg.Go(func() {
				if err := hold(t.Context(), n, new(gauge), time.Millisecond); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		for _, n := range []*node{second, third, second, second} { // the last two have a place behind the third gateway's
			wait(n)
		}
		time.Sleep(interval)
		if all, now := asks(); all-before != 2 || now-alone != 1 {
			t.Errorf("while several wait: %d asks, of which %d alone; want 2 and 1", all-before, now-alone)
		}
		held.Release()
		wg.Wait()
	})
}
