package proxy

import (
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/kgate/kgate/proxy/downstream"
)

// TestWaiterStack: the stack of a goroutine whose client waits has not grown beyond 4 KiB: it would
// stay so.
func TestWaiterStack(t *testing.T) {
	if testing.Short() {
		t.Skip("frames are larger under the race detector, which runs the short tests")
	}
	const start = "adaptivestackstart=0" // else goroutines begin with what those before have needed
	if os.Getenv("GODEBUG") != start {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestWaiterStack$")
		again.Env = append(os.Environ(), "GODEBUG="+start)
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, secure := range []bool{false, true} {
		if _, stack := waiterMemory(t, 200, secure); stack > 6<<10 {
			t.Errorf("TLS %t: %d bytes: look for the largest frames on the way to Acquire", secure, stack)
		}
	}
}

// BenchmarkWaiterMemory reports what a waiting client costs: its connection, its goroutine and its
// place in line. The clients are bare connections in the same process, so their part is in it, too.
func BenchmarkWaiterMemory(b *testing.B) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				all, stack := waiterMemory(b, 2000, secure)
				b.ReportMetric(float64(all), "B/waiter")
				b.ReportMetric(float64(stack), "B-stack/waiter")
			}
		})
	}
}

// waiterMemory returns the bytes that one of so many waiting clients takes, and those of its stack.
func waiterMemory(t testing.TB, waiters int, secure bool) (all, stack int) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	dial := g.dial
	if secure {
		g.serveTLS(downstream.Config{Handler: g.handler})
		dial = func() *rawConn { return g.dialTLS("http/1.1") }
	}
	ask := func() *rawConn {
		c := dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		return c
	}
	ask()
	up.awaitEntered(t)
	before, stacks := inUse()
	var conns []*rawConn
	for range waiters {
		conns = append(conns, ask())
	}
	g.sem.await(1, waiters)
	with, withStacks := inUse()
	for _, c := range conns {
		_ = c.Close()
	}
	g.sem.await(1, 0)
	close(up.proceed)
	return (with - before) / waiters, (withStacks - stacks) / waiters
}

// inUse returns the bytes in heap and stacks after a collection, and those in stacks.
func inUse() (all, stacks int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse), int(m.StackInuse)
}
