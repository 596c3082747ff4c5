package library

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/timing"
)

// TestLoss: a node that is cut off gives up its slots within a lease, and its holders
// know.
func TestLoss(t *testing.T) {
	const lease = 3 * time.Second
	nodes := cluster(t, 3, 3, func(c *kgate.Config) { c.Peers.Lease = lease })
	slot := acquire(t, nodes[0])
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	entered, causes := make(chan struct{}, 2), make(chan error, 2)
	addr := serve(t, nodes[0], func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		if kgate.FromContext(r.Context()).Valid() {
			t.Error("the slot of a node without a lease is valid")
		}
		causes <- context.Cause(r.Context())
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a request in the handler", entered)
	upgraded := dial(t, serve(t, nodes[0], func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		entered <- struct{}{}
		_, _ = conn.Read(make([]byte, 1)) // until the loss closes it
	}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a hijacked connection", entered)
	waited := make(chan error, 1)
	go func() {
		_, err := nodes[0].Acquire(context.Background(), "p")
		waited <- err
	}()
	eventually(t, "one waits", func() bool { return nodes[0].Stats("p").Waiting == 1 })
	began := time.Now()
	for _, n := range nodes[1:] {
		_ = n.Close() // without a word: there is no majority any more
	}
	soon(t, "the slot is lost", slot.Lost())
	if cause := soon(t, "the handler's context ends", causes); !errors.Is(cause, kgate.ErrLost) {
		t.Errorf("the handler's context has ended by %v", cause)
	}
	if _, err := upgraded.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the hijacked connection: %v", err)
	}
	if err := soon(t, "who waits is refused", waited); !errors.Is(err, kgate.ErrIsolated) {
		t.Errorf("who waits got %v", err)
	}
	took := time.Since(began)
	soon(t, "the context ends", ctx.Done())
	if cause := context.Cause(ctx); !errors.Is(cause, kgate.ErrLost) || slot.Valid() {
		t.Errorf("the context has ended by %v, valid %v", cause, slot.Valid())
	}
	// The lease counts from its last renewal, which was before.
	timing.Within(t, "lost", took, lease)
	var refused *kgate.Refused
	if _, err := nodes[0].Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrIsolated) || !errors.As(err, &refused) || refused.Pool != "p" {
		t.Errorf("a slot without a lease: %v", err)
	}
}

// TestTransport: of requests that Middleware has admitted and of slots of Acquire.
func TestTransport(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	fences := make(chan string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fences <- r.Header.Get("Kgate-Fence") }))
	defer upstream.Close()
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) {
		want := kgate.FromContext(ctx).Fence()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if got := <-fences; got != want || !strings.HasPrefix(got, "p/") {
			t.Errorf("fence %q, want %q", got, want)
		}
	}
	n.Middleware("p")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { get(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	get(ctx)
	slot.Release()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if slot.Valid() || !errors.Is(err, kgate.ErrLost) {
		t.Errorf("after its release the slot is valid: %v; got %v", slot.Valid(), err)
	}
}

// slowToClose is a connection whose end takes a while.
type slowToClose struct {
	net.Conn
	closed *atomic.Bool
}

// Close implements net.Conn.
func (c slowToClose) Close() error {
	time.Sleep(200 * time.Millisecond)
	err := c.Conn.Close()
	c.closed.Store(true)
	return err
}

// TestTransportBreaksOff: when the body of an answer is closed before its end, the
// connection is closed first, so that the slot may go to the next one. Net/http's own
// Close returns before. A body that was read to its end leaves the connection to others.
func TestTransportBreaksOff(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			var dialed atomic.Int32
			var closed atomic.Bool
			serve := httptest.NewServer
			if secure {
				serve = httptest.NewTLSServer
			}
			upstream := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "some")
				if r.URL.Path == "/more" {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			defer upstream.Close()
			base := upstream.Client().Transport.(*http.Transport)
			base.Dial = func(network, addr string) (net.Conn, error) { //nolint:staticcheck // a program may have it
				dialed.Add(1)
				conn, err := net.Dial(network, addr)
				return slowToClose{conn, &closed}, err
			}
			base.DialContext = nil
			client := http.Client{Transport: n.Transport(base)}
			defer client.CloseIdleConnections()
			for _, path := range []string{"/", "/", "/more"} {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if path == "/" {
					_, _ = io.Copy(io.Discard, res.Body)
				}
				_ = res.Body.Close()
				if closed.Load() != (path == "/more") {
					t.Errorf("after the answer to %s the connection is closed: %v", path, closed.Load())
				}
			}
			if dialed.Load() != 1 {
				t.Errorf("%d connections", dialed.Load())
			}
		})
	}
}
