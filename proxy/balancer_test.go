package proxy

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// TestSeveralUpstreams: the one with the fewest requests in flight is taken.
func TestSeveralUpstreams(t *testing.T) {
	gates := []*gate{newGate(), newGate(), newGate()}
	var urls []*url.URL
	for _, up := range gates {
		urls = append(urls, startHandler(t, func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	}
	g := newGateway(t, 100, http.NotFoundHandler(), func(c *Config) { c.Pools[0].Upstreams = urls })
	conns := make([]*rawConn, 9)
	for i := range conns {
		conns[i] = g.dial()
		conns[i].send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		g.sem.await(i+1, 0)
	}
	for _, up := range gates {
		for range 3 {
			up.awaitEntered(t)
		}
	}
	close(gates[1].proceed) // its three end, the next ones go there
	g.sem.await(6, 0)
	for range 3 {
		c := g.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		c.response()
		gates[1].awaitEntered(t)
	}
	close(gates[0].proceed)
	close(gates[2].proceed)
}

// TestNextUpstream: a request that cannot be delivered goes to the next upstream,
// body and all, on the same slot; when there is none left it fails.
func TestNextUpstream(t *testing.T) {
	alive := startHandler(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	alive.Path = "/base"
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{refusing(1), alive, refusing(2)}
	})
	for i := range 10 {
		c := g.dial()
		c.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		if res := c.response(); res.StatusCode != 100 {
			t.Fatalf("request %d: status %d, want 100", i, res.StatusCode)
		}
		c.send("hello")
		res := c.response()
		if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(b) != "hello" {
			t.Fatalf("request %d: status %d, body %q", i, res.StatusCode, b)
		}
		if rec := g.records.next(t); rec.Upstream != alive.Host || rec.DialFailed || rec.Outcome != admission.OutcomeAdmitted {
			t.Errorf("record %+v", rec)
		}
		_ = c.Close()
	}
	if admitted := len(g.records.admitted); admitted != 10 {
		t.Errorf("%d slots for 10 requests", admitted)
	}

	g = newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{refusing(1), refusing(2)}
	})
	for range 5 { // they have long been unhealthy: without checks they are tried all the same
		res := g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		if rec := g.records.next(t); res.StatusCode != 502 || !rec.DialFailed || rec.Outcome != admission.OutcomeUpstreamError {
			t.Errorf("status %d, record %+v", res.StatusCode, rec)
		}
	}
}

// TestNotSentTwice: what an upstream has begun to read goes to no other one.
func TestNotSentTwice(t *testing.T) {
	var hits atomic.Int32
	breaks := func(http.ResponseWriter, *http.Request) {
		hits.Add(1)
		panic(http.ErrAbortHandler)
	}
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{startHandler(t, breaks), startHandler(t, breaks)}
	})
	for i, method := range []string{"GET", "POST"} {
		res := g.do(g.request(method, "/"))
		_ = res.Body.Close()
		if n := hits.Load(); res.StatusCode != 502 || n != int32(i+1) {
			t.Errorf("%s: status %d, %d upstreams have seen it", method, res.StatusCode, n)
		}
	}
}

// TestResendGoesNowhereElse: what may be sent again to an upstream that has closed a kept
// connection goes to no other one, also when that upstream takes no new connection.
func TestResendGoesNowhereElse(t *testing.T) {
	var hits atomic.Int32
	var urls []*url.URL
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/last" {
				hits.Add(1)
				_ = l.Close()
				panic(http.ErrAbortHandler)
			}
		})}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		urls = append(urls, &url.URL{Scheme: "http", Host: l.Addr().String()})
	}
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) { c.Pools[0].Upstreams = urls })
	for range 2 { // both have a kept connection
		g.answer("/")
		g.records.next(t)
	}
	res := g.do(g.request("GET", "/last"))
	_ = res.Body.Close()
	if rec := g.records.next(t); res.StatusCode != 502 || hits.Load() != 1 || rec.ReusedConns != 1 {
		t.Errorf("status %d, %d upstreams have seen it, %+v", res.StatusCode, hits.Load(), rec)
	}
}

// TestQuiet: an upstream is quiet from the moment when a request begins to wait for its answer, over
// requests that give up, until it answers.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &backend{weight: 1}
		b := &balancer{backends: []*backend{u}, policy: Health{}.withDefaults()}
		quiet := func(want time.Duration, unanswered int) {
			t.Helper()
			if s := b.status()[0]; s.Quiet != want || s.Unanswered != unanswered {
				t.Errorf("quiet for %v, %d unanswered; want %v, %d", s.Quiet, s.Unanswered, want, unanswered)
			}
		}
		ask := func() { b.pick(nil) }
		settle := func(how settling) { b.settled(u, how); b.done(u, verdictNone, nil) }
		ask()
		time.Sleep(10 * time.Second)
		ask()
		quiet(10*time.Second, 2)
		settle(settlingGaveUp)
		settle(settlingGaveUp)
		quiet(0, 0)
		time.Sleep(time.Second)
		ask()
		quiet(10*time.Second, 1) // a second without anybody who waits
		settle(settlingAnswered)
		ask()
		quiet(0, 1)
		settle(settlingGaveUp)
		time.Sleep(time.Minute)
		ask()
		quiet(0, 1)
		settle(settlingAnswered)
		for range 10 { // a gateway that loses its lease again and again
			ask()
			time.Sleep(3 * time.Second)
			quiet(3*time.Second, 1)
			settle(settlingLost)
			time.Sleep(time.Second)
		}
		ask()
		settle(settlingGaveUp)
		time.Sleep(time.Second)
		ask()
		settle(settlingLost)
		time.Sleep(time.Second)
		ask()
		quiet(0, 1)
	})
}

// TestQuietOfLostSlots: a ticket's slot that is lost, since its upstream does not answer, does not
// end the silence of that upstream. Slots that are lost with the lease say nothing of it.
func TestQuietOfLostSlots(t *testing.T) {
	const gone, another = 0, 2
	for standing, want := range map[uint64]time.Duration{1: 12 * time.Second, gone: 4 * time.Second, another: 4 * time.Second} {
		inVirtualTime(t, func(t *testing.T) {
			up := newGate()
			g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
			for range 2 {
				c := g.dial()
				c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				up.awaitEntered(t)
				time.Sleep(4 * time.Second)
				g.sem.standing.Store(standing)
				g.sem.last().lose()
				if res := c.response(); res.StatusCode != 503 {
					t.Errorf("got %s", res.Status)
				}
				g.sem.standing.Store(1)
			}
			c := g.dial()
			c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			up.awaitEntered(t)
			time.Sleep(4 * time.Second)
			if s := g.handler.Upstreams()[0]; s.Quiet != want {
				t.Errorf("standing %d: quiet for %v, want %v", standing, s.Quiet, want)
			}
			close(up.proceed)
		})
	}
}
