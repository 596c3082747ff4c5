package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// fickle is an upstream that answers the first request of each connection and
// closes it upon the second, as one does whose time for idle connections ends
// just then.
type fickle struct {
	mu   sync.Mutex
	seen map[string]int // requests, answered or not, by path
}

func (f *fickle) serve(t testing.TB, c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for answer := true; ; answer = false {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.seen[req.URL.Path]++
		f.mu.Unlock()
		if !answer {
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

func startFickle(t testing.TB) (*fickle, *url.URL) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fickle{seen: make(map[string]int)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(t, c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return f, mustURL(t, "http://"+l.Addr().String())
}

// TestDeadIdleConnection: a kept connection that turns out to be dead costs a
// request nothing that may be sent again, and no other is sent twice.
func TestDeadIdleConnection(t *testing.T) {
	for _, tt := range []struct {
		method, body string
		status, seen int
	}{
		{"GET", "", 200, 2},
		{"HEAD", "", 200, 2},
		{"POST", "", 502, 1},
		{"POST", "body", 502, 1},
		{"PUT", "body", 502, 1},
		{"DELETE", "", 502, 1},
	} {
		up, to := startFickle(t)
		g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) { c.Pools[0].Upstreams = []*url.URL{to} })
		res := g.do(g.request("GET", "/first"))
		_ = res.Body.Close()
		g.records.next(t) // the connection is kept by now
		req := g.request(tt.method, "/second")
		req.Body = io.NopCloser(strings.NewReader(tt.body))
		req.ContentLength = int64(len(tt.body))
		res = g.do(req)
		_ = res.Body.Close()
		if rec := g.records.next(t); rec.ReusedConns != 1 || int(rec.NewConns) != tt.seen-1 {
			t.Errorf("%s %q: written to %d reused and %d new connections", tt.method, tt.body, rec.ReusedConns, rec.NewConns)
		}
		g.handler.Close()
		up.mu.Lock()
		if res.StatusCode != tt.status || up.seen["/second"] != tt.seen {
			t.Errorf("%s %q: status %d, seen %d times; want %d, %d", tt.method, tt.body, res.StatusCode, up.seen["/second"], tt.status, tt.seen)
		}
		up.mu.Unlock()
	}
}

// TestIdleTimeout: a pool's connections are kept for as long as it says.
func TestIdleTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		g.answer("/")
		time.Sleep(admission.DefaultIdleTimeout - time.Nanosecond)
		synctest.Wait()
		kept := g.openConns()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if left := g.openConns(); kept != 1 || left != 0 {
			t.Errorf("%d connections are kept, %d for longer", kept, left)
		}
	})
}
