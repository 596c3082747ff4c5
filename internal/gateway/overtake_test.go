package gateway

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// overtakes counts requests that were overtaken.
type overtakes struct {
	PoolObserver
	n int
}

func (o *overtakes) Overtaken() { o.n++ }

// TestOvertaken: two tokens, one held for long. Early binding ties the next
// request to it, and the one behind that overtakes; late binding ties none.
func TestOvertaken(t *testing.T) {
	for binding, want := range map[admission.Binding]int{admission.BindingEarly: 1, admission.BindingLate: 0} {
		t.Run(string(binding), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, 2, binding, 0, PoolConfig{})
				n := f.gateways[1]
				p := n.pool(testPool)
				p.mu.Lock()
				count := &overtakes{PoolObserver: p.watch}
				p.watch = count
				p.mu.Unlock()
				var wg sync.WaitGroup
				for i, d := range []time.Duration{100, 10, 10, 10} {
					wg.Go(func() {
						if err := hold(t.Context(), n, new(gauge), d*time.Millisecond); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Millisecond) // virtual
					synctest.Wait()
					if i == 3 && statusOf(p).Waiting != 2 {
						t.Errorf("%d wait", statusOf(p).Waiting)
					}
				}
				wg.Wait()
				if count.n != want {
					t.Errorf("%d overtaken, want %d", count.n, want)
				}
			})
		})
	}
}
