package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// A process that was stopped (SIGSTOP) wakes up in the middle of what it was
// doing, its lease long gone, before any timer has run and before anybody has
// been told. These tests take the standing or the slot away without a word and
// then go on. The upstream counts what arrives; it is not asked before it has
// seen its connection end.

// takeAway are the two ways to find out: the slot says so, at whatever is handed
// to the transport, and the standing says so, at whatever the transport writes.
var takeAway = map[string]func(*gateway){
	"slot":     func(g *gateway) { g.sem.last().invalid.Store(true) },
	"standing": func(g *gateway) { g.sem.standing.Store(0) },
}

// more returns how many bytes the upstream got since there were before. HTTP/2's
// own frames are no request's: the acknowledgement of settings, which may have
// been on its way, and the reset of a stream with the ping that follows it.
func (g *gateway) more(before int64, scheme string) int64 {
	n := g.metered.bytes.Load() - before
	if scheme == "h2c" && n <= 9+13+17 {
		return 0
	}
	return n
}

// TestSilentUpload: not a byte more of a body.
func TestSilentUpload(t *testing.T) {
	for how, take := range takeAway {
		for _, scheme := range []string{"http", "h2c"} {
			t.Run(how+" "+scheme, func(t *testing.T) {
				got := make(chan struct{})
				rest := make(chan int64, 1)
				g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.ReadFull(r.Body, make([]byte, 5))
					close(got)
					n, _ := io.Copy(io.Discard, r.Body)
					rest <- n
				}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
				c := g.dial()
				c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nhello")
				<-got
				before := g.metered.bytes.Load()
				take(g)
				c.send("more of the body")
				if res := c.response(); res.StatusCode != 503 {
					t.Errorf("got %v", res.Status)
				}
				if n := <-rest; n != 0 {
					t.Errorf("%d bytes of the body arrived", n)
				}
				if n := g.more(before, scheme); n != 0 {
					t.Errorf("the upstream got %d bytes more", n)
				}
				g.sem.await(0, 0)
			})
		}
	}
}

// TestSilentUpgrade: not a byte more over an upgraded connection.
func TestSilentUpgrade(t *testing.T) {
	for how, take := range takeAway {
		t.Run(how, func(t *testing.T) {
			gone := make(chan struct{})
			echo := echoUpgrade(t)
			g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(gone)
				echo(w, r)
			}))
			c := g.dial()
			c.send(upgradeRequest)
			c.response()
			before := g.metered.bytes.Load()
			take(g)
			c.send("ping")
			awaitGone(t, gone)
			if n := g.metered.bytes.Load() - before; n != 0 {
				t.Errorf("the upstream got %d bytes more", n)
			}
			if b, _ := io.ReadAll(c.br); len(b) > 0 {
				t.Errorf("the client got %q", b)
			}
			g.sem.await(0, 0)
		})
	}
}

// TestSilentRequest: a kept connection of an earlier standing carries no new
// request, be there a new standing or none.
func TestSilentRequest(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		var requests atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }),
			func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
		get := func(want int) {
			t.Helper()
			res := g.do(g.request("GET", "/"))
			_ = res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s: got %v, want %d", scheme, res.Status, want)
			}
			g.sem.await(0, 0)
		}
		g.shareConn(g.client)
		before, conns, asked := g.metered.bytes.Load(), g.metered.conns.Load(), requests.Load()
		g.sem.standing.Store(0)
		get(503)
		if n := g.more(before, scheme); n != 0 {
			t.Errorf("%s: the upstream got %d bytes without the standing", scheme, n)
		}
		if n := requests.Load() - asked; n != 0 {
			t.Errorf("%s: %d requests at the upstream without the standing", scheme, n)
		}
		g.sem.standing.Store(2)
		get(200)
		g.sem.standing.Store(3) // nobody has seen the gap
		get(200)
		if n := g.metered.conns.Load() - conns; n != 2 {
			t.Errorf("%s: %d new connections, want one for each standing", scheme, n)
		}
	}
}

// TestSilentWrite: the check stands right before the write. The standing ends
// after everything else was asked.
func TestSilentWrite(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		var requests atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }),
			func(c *Config) {
				c.Pools[0].Upstreams[0].Scheme = scheme
				sem := c.Admitter.(*semaphore)
				c.Standing = func() uint64 {
					// Asked when it is admitted, by RoundTrip, then by the write.
					switch now := sem.standing.Load(); now {
					case 4:
						sem.standing.Store(3)
					case 3:
						sem.standing.Store(0)
					case 0:
						return 0
					}
					return 1
				}
			})
		res := g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		before := g.metered.bytes.Load()
		g.sem.standing.Store(4) // for two more questions
		res = g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		if res.StatusCode != 503 || requests.Load() != 1 {
			t.Errorf("%s: got %v, %d requests at the upstream", scheme, res.Status, requests.Load())
		}
		if n := g.more(before, scheme); n != 0 {
			t.Errorf("%s: the upstream got %d bytes", scheme, n)
		}
		g.sem.await(0, 0)
	}
}

// TestStandingSparesOthers: a route without a pool needs no standing.
func TestStandingSparesOthers(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(c *Config) {
		c.Routes = []Route{{Match: Match{PathPrefix: "/free/"}, Upstreams: c.Pools[0].Upstreams}, {Pool: "p"}}
	})
	g.sem.standing.Store(0)
	res := g.do(g.request("GET", "/free/"))
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("got %v", res.Status)
	}
}
