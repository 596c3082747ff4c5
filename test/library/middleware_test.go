package library

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/timing"
)

// TestHijack: the slot lasts until the hijacked connection is closed, long after the
// handler has returned.
func TestHijack(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	hijacked := make(chan net.Conn, 1)
	addr := serve(t, n, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- conn
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	conn := soon(t, "hijacked", hijacked)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if slot, err := n.Acquire(ctx, "p"); err == nil {
		t.Errorf("a second slot of one, %s", slot.Fence())
		slot.Release()
	}
	_, _ = conn.Close(), conn.Close()
	acquire(t, n).Release()
	eventually(t, "nothing in flight", func() bool { return n.Stats("p").InFlight == 0 })
}

// TestWaitingPostLeaves: a client that waits with a body that nobody has read, and
// leaves, is out of the line within a second.
func TestWaitingPostLeaves(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	served := n.Middleware("p")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, name := range []string{"http", "https"} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(served)
			s.Config.ConnContext = kgate.ConnContext
			if name == "https" {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			defer acquire(t, n).Release()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if name == "https" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbody"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "in line", func() bool { return n.Stats("p").Waiting == 1 })
			began := time.Now()
			_ = conn.Close()
			eventually(t, "out of the line", func() bool { return n.Stats("p").Waiting == 0 })
			timing.Within(t, "out", time.Since(began), time.Second)
		})
	}
}

// TestPanic passes, and gives the slot back.
func TestPanic(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	mine := errors.New("mine")
	h := n.Middleware("p")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(mine) }))
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != mine {
					t.Errorf("panic: %v", got)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}()
	}
	if s := n.Stats("p"); s.InFlight != 0 || s.K != 1 {
		t.Errorf("%+v", s)
	}
}

// TestClientAddr: the program says who a client is. One with a slot of its own has
// another wait, and stops nobody else.
func TestClientAddr(t *testing.T) {
	n := cluster(t, 1, 2, func(c *kgate.Config) {
		c.Pools[0].ClientInFlight = 1
		c.ClientAddr = func(r *http.Request) netip.Addr {
			addr, _ := netip.ParseAddr(r.Header.Get("Test-Client"))
			return addr
		}
	})[0]
	entered, leave := make(chan string, 3), make(chan struct{})
	end := sync.OnceFunc(func() { close(leave) })
	addr := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
		entered <- r.Header.Get("Test-Client")
		<-leave
	})
	defer end()
	ask := func(client string) {
		dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTest-Client: "+client+"\r\n\r\n")
	}
	ask("192.0.2.1")
	first := soon(t, "the first", entered)
	ask("192.0.2.1")
	eventually(t, "the same client waits", func() bool { return n.Stats("p").Waiting == 1 })
	ask("192.0.2.2")
	if second := soon(t, "the other client", entered); first != "192.0.2.1" || second != "192.0.2.2" {
		t.Errorf("served %s, then %s", first, second)
	}
	end()
	soon(t, "the last", entered)
}
