package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kgate/kgate/internal/problems"
)

// TestLetter: requests that the gateway answers itself, since HTTP says so.
func TestLetter(t *testing.T) {
	many := strings.Repeat("a:\r\n", maxFields+1)
	for _, c := range []struct {
		name, line, header string
		status             int
		allow, seen        string // seen: the request line at the upstream
	}{
		{"OPTIONS *", "OPTIONS * HTTP/1.1", "", 200, ownMethods, ""},
		{"a method that no route takes", "DELETE /read/x HTTP/1.1", "", 405, "GET, HEAD, PUT", ""},
		{"a method that the second route takes", "PUT /read/x HTTP/1.1", "", 200, "", "PUT /read/x"},
		{"no route", "DELETE /nowhere HTTP/1.1", "", 404, "", ""},
		{"CONNECT", "CONNECT h:80 HTTP/1.1", "", 405, ownMethods, ""},
		{"the last hop, OPTIONS", "OPTIONS /read/x HTTP/1.1", "Max-Forwards: 0\r\n", 200, "GET, HEAD, PUT", ""},
		{"the last hop, TRACE", "TRACE /pool/ HTTP/1.1", "Max-Forwards: 0\r\nCookie: secret\r\n", 405, ownMethods, ""},
		{"one more hop", "TRACE /pool/ HTTP/1.1", "Max-Forwards: 1\r\n", 200, "", "TRACE /pool/ max 0"},
		{"hops of another method", "GET /pool/ HTTP/1.1", "Max-Forwards: 0\r\n", 200, "", "GET /pool/ max 0"},
		{"as many fields as may be", "GET /pool/ HTTP/1.1", many[:4*(maxFields-1)], 200, "", "GET /pool/"},
		{"one field more", "GET /pool/ HTTP/1.1", many, 431, "", ""},
		{"Proxy", "GET /pool/ HTTP/1.1", "Proxy: http://evil.test\r\n", 200, "", "GET /pool/"},
		{"a loop", "GET /pool/ HTTP/1.1", "Via: 1.0 fred, 1.1 PSEUDONYM (a, b)\r\n", 508, "", ""},
		{"no loop", "GET /pool/ HTTP/1.1", "Via: 1.1 kgate-00000000, 1.0 fred (1.1 PSEUDONYM)\r\n", 200, "", "GET /pool/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					seen := r.Method + " " + r.RequestURI
					if m := r.Header.Get("Max-Forwards"); m != "" {
						seen += " max " + m
					}
					if r.Header.Get("Proxy") != "" {
						t.Error("the upstream sees Proxy")
					}
					w.Header().Set("Seen", seen)
				}), func(cfg *Config) {
					cfg.Routes = []Route{
						{Pool: "p", Match: Match{PathPrefix: "/pool/"}},
						{Pool: "p", Match: Match{PathPrefix: "/read/", Methods: []string{"GET", "HEAD"}}},
						{Pool: "p", Match: Match{PathPrefix: "/read/", Methods: []string{"PUT", "GET"}}},
					}
				})
				conn := g.dial()
				conn.send(c.line + "\r\nHost: h\r\n" + strings.ReplaceAll(c.header, "PSEUDONYM", g.handler.current.Load().pseudonym) + "\r\n")
				res := conn.response()
				if res.StatusCode != c.status || res.Header.Get("Allow") != c.allow || res.Header.Get("Seen") != c.seen {
					t.Errorf("got %v, Allow %q, the upstream saw %q; want %d, %q, %q",
						res.Status, res.Header.Get("Allow"), res.Header.Get("Seen"), c.status, c.allow, c.seen)
				}
				body, _ := io.ReadAll(io.LimitReader(res.Body, max(res.ContentLength, 0)))
				if c.status >= 400 && !strings.Contains(string(body), `"type":"`+problems.TypeBase) {
					t.Errorf("body %q", body)
				}
				if strings.Contains(string(body), "secret") {
					t.Error("the answer tells secrets")
				}
			})
		})
	}
}

// TestLoop: a gateway whose upstream is itself answers, and does not wait for itself
// with every slot taken.
func TestLoop(t *testing.T) {
	g := newGateway(t, 3, http.NotFoundHandler(), func(c *Config) { c.Pools[0].QueueTimeout = -1 })
	cfg := g.handler.current.Load().cfg
	cfg.Pools[0].Upstreams[0] = mustURL(t, g.url)
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	res := g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != http.StatusLoopDetected {
		t.Errorf("got %v", res.Status)
	}
}

// TestAnswerToTheLetter: what an upstream may not say is taken out of its answer,
// and nothing is added that it has not said.
func TestAnswerToTheLetter(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Alt-Svc", `h3=":443"`)
		h.Set("Kgate-Refusal", "timeout")
		h.Set("kgate_fence", "p/1/1")
		h["Content-Type"] = nil
		if r.URL.Path == "/hints" {
			h.Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		h.Set("Trailer", "Kgate-Late, Late")
		_, _ = io.WriteString(w, "<html>")
		_ = http.NewResponseController(w).Flush()
		h.Set("Kgate-Late", "x")
		h.Set("Late", "y")
		h.Set(http.TrailerPrefix+"Kgate-Later", "z")
	}))
	for _, version := range []string{"1.0", "1.1"} {
		conn := g.dial()
		conn.send("GET /hints HTTP/" + version + "\r\nHost: h\r\nConnection: close\r\n\r\n")
		all, err := io.ReadAll(conn.br)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.ToLower(string(all))
		for _, never := range []string{"alt-svc", "kgate-refusal", "kgate_fence", "kgate-late", "content-type"} {
			if strings.Contains(got, never) {
				t.Errorf("HTTP/%s: %s in\n%s", version, never, all)
			}
		}
		if hints := strings.Contains(got, " 103 "); hints != (version == "1.1") || !strings.Contains(got, " 200 ") {
			t.Errorf("HTTP/%s: 103: %t\n%s", version, hints, all)
		}
		if late := strings.Contains(got, "late: y"); late != (version == "1.1") {
			t.Errorf("HTTP/%s: trailer: %t\n%s", version, late, all)
		}
	}
}

// TestUpgradeInHTTP10: HTTP/1.0 has no upgrades (RFC 9110, section 7.8).
func TestUpgradeInHTTP10(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	conn := g.dial()
	conn.send("GET / HTTP/1.0\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res := conn.response(); res.StatusCode != 200 || res.Header.Get("Got-Upgrade") != "" {
		t.Errorf("got %v, the upstream sees Upgrade: %q", res.Status, res.Header.Get("Got-Upgrade"))
	}
}

// TestDrainingKeepsPipelined: requests that have come behind the one that is served are answered as
// well when the gateway is going, and only the last answer says that the connection ends.
func TestDrainingKeepsPipelined(t *testing.T) {
	var draining atomic.Bool
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			up.entered <- r
			<-up.proceed
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}), func(c *Config) { c.Draining = draining.Load })
	c := g.dial()
	c.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\nGET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)
	c.send("GET /third HTTP/1.1\r\nHost: h\r\n\r\n")
	draining.Store(true)
	close(up.proceed)
	for i, path := range []string{"/first", "/second", "/third"} {
		res, err := http.ReadResponse(c.br, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != path || res.Close != (i == 2) {
			t.Errorf("%s: %q, closes %v, %v", path, body, res.Close, err)
		}
	}
}

// TestDrainingCloses: clients of a gateway that is going are told so with every
// answer.
func TestDrainingCloses(t *testing.T) {
	draining := false
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) { c.Draining = func() bool { return draining } })
	for _, want := range []bool{false, true} {
		draining = want
		conn := g.dial()
		conn.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if res := conn.response(); res.StatusCode != 200 || res.Close != want {
			t.Errorf("draining %t: got %v, close %t", want, res.Status, res.Close)
		}
	}
}

// TestHeaderMemory: what a waiting request keeps of its header is bounded by its
// bytes: many small fields are not accepted.
func TestHeaderMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens hundreds of connections")
	}
	const waiters = 200
	const size = 14 << 10
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)
	for _, fields := range []int{1, 190, 14_000} {
		var header strings.Builder
		for i := range fields {
			fmt.Fprintf(&header, "%x:%s\r\n", i, strings.Repeat("v", max(0, size/fields-8)))
		}
		before, _ := inUse()
		conns := make([]*rawConn, waiters)
		refused := 0
		for i := range conns {
			conns[i] = g.dial()
			conns[i].send("GET / HTTP/1.1\r\nHost: h\r\n" + header.String() + "\r\n")
			if fields > maxFields {
				if res := conns[i].response(); res.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
					refused++
				}
			}
		}
		g.sem.await(1, waiters-refused)
		with, _ := inUse()
		each := (with - before) / waiters
		t.Logf("%d header fields, %d bytes: %d of %d refused, %d KiB for each, the clients' connections included",
			fields, header.Len(), refused, waiters, each>>10)
		if each > 58<<10 {
			t.Errorf("%d KiB for each", each>>10)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		g.sem.await(1, 0)
	}
	close(up.proceed)
}
