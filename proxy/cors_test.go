package proxy

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// corsRoutes are those of the tests: a pool's with a list of origins, and one for all.
func corsRoutes(c *Config) {
	c.Edge.RequestIDHeader = "X-Request-ID"
	c.Routes = []Route{
		{Pool: "p", Match: Match{PathPrefix: "/list", Methods: []string{"GET", "PUT"}}, CORS: CORS{
			Origins: []string{"https://app.example.com", "https://*.example.org", "http://localhost:3000"}, Credentials: true, Preflight: true,
		}},
		{Pool: "p", Match: Match{PathPrefix: "/all"}, CORS: CORS{Origins: []string{"*"}}},
		{Pool: "p", Match: Match{PathPrefix: "/none"}},
	}
}

// TestCORSOnRefusals: a page of another origin reads why it is refused, if it may.
func TestCORSOnRefusals(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler(), corsRoutes)
	g.sem.refusal = &admission.Refusal{Reason: admission.Timeout, RetryAfter: 9 * time.Second}
	for _, c := range []struct {
		path, origin, allowed string
		vary                  bool
	}{
		{"/list", "https://app.example.com", "https://app.example.com", true},
		{"/list", "https://a.b.example.org", "https://a.b.example.org", true},
		{"/list", "http://localhost:3000", "http://localhost:3000", true},
		{"/list", "http://localhost", "", true},
		{"/list", "http://app.example.com", "", true},
		{"/list", "https://example.org", "", true},
		{"/list", "https://evil.test/.example.org", "", true},
		{"/list", "https://evil.test:1.example.org", "", true},
		{"/list", "https://evilexample.org", "", true},
		{"/list", "https://app.example.com.evil.test", "", true},
		{"/list", "null", "", true},
		{"/list", "", "", true},
		{"/all", "https://anybody.test", "*", false},
		{"/all", "", "*", false},
		{"/none", "https://app.example.com", "", false},
	} {
		for _, client := range []*http.Client{g.client, h2cClient(t)} {
			req := g.request("GET", c.path)
			if c.origin != "" {
				req.Header.Set("Origin", c.origin)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			h := res.Header
			exposed := strings.Contains(h.Get("Access-Control-Expose-Headers"), "Retry-After") && strings.HasSuffix(h.Get("Access-Control-Expose-Headers"), ", X-Request-Id")
			credentials := h.Get("Access-Control-Allow-Credentials") == "true"
			if res.StatusCode != 503 || h.Get("Access-Control-Allow-Origin") != c.allowed || exposed != (c.allowed != "") || credentials != (c.allowed != "" && c.path == "/list") || slices.Contains(h["Vary"], "Origin") != c.vary {
				t.Errorf("%s from %q: %v %v", c.path, c.origin, res.Status, h)
			}
		}
	}
}

// TestCORSOfTheUpstream: what pages may read of the upstream's answers it says itself.
func TestCORSOfTheUpstream(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://own.test")
	}), corsRoutes)
	res := g.do(g.request("GET", "/all", "Origin", "https://app.example.com"))
	_ = res.Body.Close()
	if h := res.Header; !slices.Equal(h["Access-Control-Allow-Origin"], []string{"https://own.test"}) || h.Get("Access-Control-Expose-Headers") != "" {
		t.Errorf("got %v", h)
	}
}

// TestPreflight: what a browser asks before a request takes no place in line, and does not
// go to the upstream, if the route says so.
func TestPreflight(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			up.pass(r)
		}
	}), corsRoutes)
	hold := g.dial()
	hold.send("GET /list HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t) // k is reached
	for _, c := range []struct {
		path, method, origin string
		status               int
		allowed              string // the method
	}{
		{"/list", "PUT", "https://app.example.com", 204, "PUT"},
		{"/list", "PUT", "https://elsewhere.test", 204, ""},
		{"/list", "DELETE", "https://app.example.com", 405, ""}, // no route takes it
		{"/list", "", "https://app.example.com", 405, ""},
		{"/list", "PUT", "", 405, ""},
		{"/all", "PUT", "https://app.example.com", 503, ""}, // it waits, as any OPTIONS does
	} {
		req := g.request("OPTIONS", c.path, "Access-Control-Request-Headers", "x-a, x-b", "Prefer", "wait=0")
		for name, value := range map[string]string{"Origin": c.origin, "Access-Control-Request-Method": c.method} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		res := g.do(req)
		_ = res.Body.Close()
		h := res.Header
		headers, age := "", ""
		if c.allowed != "" {
			headers, age = "x-a, x-b", "600"
		}
		if res.StatusCode != c.status || h.Get("Access-Control-Allow-Methods") != c.allowed || h.Get("Access-Control-Allow-Headers") != headers || h.Get("Access-Control-Max-Age") != age ||
			(h.Get("Access-Control-Allow-Origin") == c.origin) != (c.allowed != "") && c.path == "/list" && c.origin != "" && c.status == 204 {
			t.Errorf("%s of %s from %q: %v %v", c.method, c.path, c.origin, res.Status, h)
		}
	}
	close(up.proceed)
	hold.response()
}

func TestBadCORS(t *testing.T) {
	for _, bad := range []CORS{
		{Origins: []string{"app.example.com"}},
		{Origins: []string{"https://a/b"}},
		{Origins: []string{"https://*"}},
		{Origins: []string{"null"}},
		{Origins: []string{"*"}, Credentials: true},
	} {
		if bad.check() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// TestCORSOfTickets: a page may use tickets of the pools whose routes list its origin, and
// read what the ticket API says.
func TestCORSOfTickets(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler(), corsRoutes, func(c *Config) {
		at := c.Pools[0].Upstreams
		c.Pools = append(c.Pools, Pool{Name: "list", Upstreams: at, Tickets: true}, Pool{Name: "other", Upstreams: at, Tickets: true})
		c.Routes[0].Pool, c.Routes[2].Pool = "list", "other"
		c.Tickets = new(counter)
		c.TicketHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, pool := range []string{"", "list", "other", "p"} {
				if MayUseTickets(r.Context(), pool) {
					w.Header().Add("May", pool+".")
				}
			}
			w.WriteHeader(http.StatusOK)
		})
	})
	const listed = "https://app.example.com"
	for _, c := range []struct {
		method, origin, asks string
		status               int
		allowed, methods     string
		may                  []string
	}{
		{"POST", listed, "", 200, listed, "", []string{".", "list."}},
		{"GET", listed, "", 200, listed, "", []string{".", "list."}},
		{"POST", "https://elsewhere.test", "", 200, "", "", nil}, // the route for all has a pool without tickets
		{"POST", "", "", 200, "", "", nil},
		{"OPTIONS", listed, "DELETE", 204, listed, "DELETE", nil},
		{"OPTIONS", "https://elsewhere.test", "DELETE", 204, "", "", nil},
		{"OPTIONS", listed, "", 200, listed, "", []string{".", "list."}},
	} {
		req := g.request(c.method, "/.kgate/tickets", "Access-Control-Request-Method", c.asks, "Access-Control-Request-Headers", "content-type")
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		res := g.do(req)
		_ = res.Body.Close()
		h := res.Header
		exposed := strings.Contains(h.Get("Access-Control-Expose-Headers"), "Location")
		if res.StatusCode != c.status || h.Get("Access-Control-Allow-Origin") != c.allowed || exposed != (c.allowed != "") || h.Get("Access-Control-Allow-Methods") != c.methods ||
			(h.Get("Access-Control-Allow-Headers") == "content-type") != (c.methods != "") || !slices.Contains(h["Vary"], "Origin") || !slices.Equal(h["May"], c.may) {
			t.Errorf("%s from %q, which asks for %q: %v %v", c.method, c.origin, c.asks, res.Status, h)
		}
	}
}
