package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
)

// TestForwardedPinsNothing: what a connection remembers of a request does not keep its head.
func TestForwardedPinsNothing(t *testing.T) {
	head := "Host: a" + strings.Repeat("x", 9000)
	ex := new(exchange)
	ex.http1, ex.conn = true, new(downstream.Conn)
	ex.forwarded(&http1.Request{Host: head[6:7], Remote: "192.0.2.1:1"}, false)
	if last := ex.conn.Memo.(*hop); last.host != "a" || unsafe.StringData(last.host) == unsafe.StringData(head[6:7]) {
		t.Errorf("%q is a part of the head", last.host)
	}
}

// TestHeadsOfWhoWaits: the heads of all requests that wait have a bound. One more is refused,
// unless it has its slot at once.
func TestHeadsOfWhoWaits(t *testing.T) {
	const fit, bound = 4, 1 << 20
	up := newGate()
	g := newGateway(t, 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			up.pass(r)
		}
	}), func(c *Config) {
		c.Pools = append(c.Pools, Pool{Name: "q", Upstreams: c.Pools[0].Upstreams})
		c.Routes = []Route{{Pool: "q", Match: Match{PathPrefix: "/other"}, RequestHeaders: HeaderEdits{Remove: []string{"X-Head"}}}, {Pool: "p"}}
		c.Admitter = byPool{"p": newSemaphore(t, 1), "q": newSemaphore(t, 1)}
		c.TicketHandler = http.NotFoundHandler()
		c.Edge.WaitingHeaderBytes = bound
	})
	line := g.handler.current.Load().cfg.Admitter.(byPool)["p"]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(up.proceed)
	ask := func(path, head string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.Header.Set("X-Head", head)
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		return w
	}
	wg.Go(func() { ask("/", "") })
	up.awaitEntered(t)
	large := strings.Repeat("x", bound/fit-1000)
	for i := range fit {
		wg.Go(func() { ask("/", large) })
		line.await(1, i+1)
	}
	for path, want := range map[string]int{"/": 503, "/other": 200, ticketsPath + "/1": 503} {
		w := ask(path, large)
		if refusal := w.Header().Get("Kgate-Refusal"); w.Code != want || want == 503 && refusal != "queue-full" {
			t.Errorf("%s: %d %s, want %d", path, w.Code, refusal, want)
		}
	}
	wg.Go(func() { ask("/", "") }) // there is room for a small one
	line.await(1, fit+1)
	cancel()
	line.await(0, 0)
	wg.Wait()
	if n := g.handler.heads.Load(); n != 0 {
		t.Errorf("%d bytes are counted when nobody waits", n)
	}
}
