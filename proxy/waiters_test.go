package proxy

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/kgate/kgate/proxy/downstream"
)

// TestWaiterMemory prints what a waiting client costs in the gateway: its
// connection, its goroutine and its place in line. The clients are bare connections in
// the same process, so their part is in the figure too. The goroutine's stack must not
// have grown beyond 4 KiB: it would stay so.
func TestWaiterMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	const waiters = 2000
	for _, secure := range []bool{false, true} {
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
		dial, most := g.dial, 40<<10
		if secure {
			g.serveTLS(downstream.Config{Handler: g.handler})
			dial, most = func() *rawConn { return g.dialTLS("http/1.1") }, 64<<10
		}
		c := dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)

		before, stacks := inUse()
		conns := make([]*rawConn, waiters)
		for i := range conns {
			conns[i] = dial()
			conns[i].send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		g.sem.await(1, waiters)
		with, withStacks := inUse()
		perWaiter, perStack := (with-before)/waiters, (withStacks-stacks)/waiters
		t.Logf("TLS %t: %d bytes per waiter, the clients' connections included; %d of them stacks", secure, perWaiter, perStack)
		if perWaiter > most {
			t.Errorf("TLS %t: more than %d KiB", secure, most>>10)
		}
		if perStack > 6<<10 {
			t.Errorf("TLS %t: stacks have grown: look for the largest frames on the way to Acquire", secure)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		g.sem.await(1, 0)
		close(up.proceed)
	}
}

// inUse returns the bytes in heap and stacks after a collection, and those in stacks.
func inUse() (all, stacks int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse), int(m.StackInuse)
}
