//go:build !race

// The race detector makes frames larger.

package gateway

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// TestWaitersStack: the way into the line does not make the stacks of those larger who
// then wait there. Of a request's stack, net/http's server and the proxy have used
// before they come here.
func TestWaitersStack(t *testing.T) {
	const waiters = 1000
	g := newAlone(t, 1, admission.BindingLate)
	slot, err := g.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wait := func() {
		wg.Go(func() {
			below(func() {
				if _, err := g.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1}); err == nil {
					t.Error("a second request is in")
				}
			})
		})
	}
	p := g.pool(testPool)
	waiting := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			p.mu.Lock()
			have := p.waiting
			p.mu.Unlock()
			if have == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d requests wait, want %d", have, n)
			}
		}
	}
	wait() // the first one finds nobody waiting
	waiting(1)
	before := stacks()
	for range waiters {
		wait()
	}
	waiting(1 + waiters)
	each := (stacks() - before) / waiters
	t.Logf("%d bytes of stack for each", each)
	if each > 5<<10 {
		t.Errorf("a waiting request has a stack of %d bytes, want 4 KiB", each)
	}
	cancel()
	wg.Wait()
	slot.Release()
}

// below calls do on a stack of which as much is used as in a request's handler.
//
//go:noinline
func below(do func()) {
	var used [3 << 9]byte
	do()
	runtime.KeepAlive(&used)
}

// stacks returns how many bytes are in use for stacks.
func stacks() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}
