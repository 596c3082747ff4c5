package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"
)

// reload changes the configuration that g runs with.
func (g *gateway) reload(change func(*Config)) {
	g.t.Helper()
	cfg := g.handler.current.Load().cfg
	change(&cfg)
	if err := g.handler.Reload(cfg); err != nil {
		g.t.Fatal(err)
	}
}

// answer returns status and body of the answer to GET path.
func (g *gateway) answer(path string, header ...string) string {
	res, err := g.client.Do(g.request("GET", path, header...))
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(res.StatusCode, " ", string(body))
}

// ask sends a request in the background.
func (g *gateway) ask(path string) <-chan string {
	out := make(chan string, 1)
	go func() { out <- g.answer(path) }()
	return out
}

func expectAnswer(t *testing.T, from <-chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Errorf("no answer, want %q", want)
	}
}

// TestReload: one request is in flight and two wait when their pool gets another
// upstream, hardly any time to wait, and no route any more. All three are
// served, and the waiting ones by the new upstream.
func TestReload(t *testing.T) {
	gates := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gates.pass(r) {
			_, _ = io.WriteString(w, "old")
		}
	}))
	next := startHandler(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "new "+r.URL.Path) })
	inFlight := g.ask("/")
	gates.awaitEntered(t)
	first := g.ask("/1")
	g.sem.await(1, 1)
	second := g.ask("/2")
	g.sem.await(1, 2)

	g.reload(func(c *Config) {
		c.Pools = []Pool{{Name: "p", Upstreams: []*url.URL{next}, QueueTimeout: time.Millisecond}}
		c.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/late/"}}}
	})
	if got := g.answer("/"); got[:3] != "404" {
		t.Errorf("without a route: %q", got)
	}
	if got := g.answer("/late/"); got[:3] != "503" {
		t.Errorf("the new time to wait: %q", got)
	}
	close(gates.proceed)
	expectAnswer(t, inFlight, "200 old")
	expectAnswer(t, first, "200 new /1")
	expectAnswer(t, second, "200 new /2")
}

// TestReloadKeepsUpstreams: who stays keeps connections and counts, who goes is
// let go of.
func TestReloadKeepsUpstreams(t *testing.T) {
	g := newGateway(t, 2, http.HandlerFunc(echoRequest))
	other := startHandler(t, func(http.ResponseWriter, *http.Request) {})
	same := mustURL(t, g.upstream.URL)
	g.answer("/")
	before := g.handler.current.Load().balancers["p"].backends[0]
	for i := range 3 {
		g.reload(func(c *Config) { c.Pools[0].Upstreams = []*url.URL{same, other}[:1+i%2] })
		g.answer("/")
		g.answer("/")
	}
	if now := g.handler.current.Load().balancers["p"].backends[0]; now != before {
		t.Error("an upstream that stays was begun anew")
	}
	if n := g.metered.conns.Load(); n != 1 {
		t.Errorf("%d connections to an upstream that stays, want 1", n)
	}
	g.reload(func(c *Config) { c.Pools[0].Transport.DialTimeout = time.Second })
	g.answer("/")
	if n := g.metered.conns.Load(); n != 2 {
		t.Errorf("%d connections, want a second one: the transport is another", n)
	}
}

// TestReloadUnderLoad: no request notices that upstreams come and go, and none is
// counted as in flight for ever.
func TestReloadUnderLoad(t *testing.T) {
	const clients, each = 20, 40
	g := newGateway(t, 4, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	same := mustURL(t, g.upstream.URL)
	other := startHandler(t, func(http.ResponseWriter, *http.Request) {})
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range clients {
		wg.Go(func() {
			for range each {
				if got := g.answer("/"); got != "200 " {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	seen := map[*backend]bool{}
	for i, busy := 0, true; busy; i++ {
		select {
		case <-done:
			busy = false
		case <-g.records.admitted: // as fast as requests go through
			g.reload(func(c *Config) {
				c.Pools[0].Upstreams = [][]*url.URL{{same}, {other, same}, {other}}[i%3]
				c.Pools[0].Transport.DialTimeout = time.Duration(1+i%2) * time.Second
			})
			for _, u := range g.handler.current.Load().balancers["p"].backends {
				seen[u] = true
			}
		}
	}
	g.sem.await(0, 0)
	for u := range seen {
		if u.inFlight != 0 {
			t.Errorf("%d counted in flight", u.inFlight)
		}
	}
	if len(seen) < 4 {
		t.Errorf("only %d upstreams were made: the test is too tame", len(seen))
	}
}

// TestReloadTrust: who is believed changes with the next request.
func TestReloadTrust(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	for _, want := range []string{"200 127.0.0.1", "200 192.0.2.7, 127.0.0.1"} {
		if got := g.answer("/", "X-Forwarded-For", "192.0.2.7"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		g.reload(func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	}
}

// TestReloadRefused: what is wrong changes nothing.
func TestReloadRefused(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	before := g.handler.current.Load()
	if err := g.handler.Reload(Config{Routes: []Route{{Pool: "p"}}}); !errors.Is(err, errConfig) {
		t.Errorf("reloaded: %v", err)
	}
	if g.handler.current.Load() != before || g.answer("/") != "200 " {
		t.Error("a refused configuration has changed something")
	}
}
