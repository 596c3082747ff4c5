package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
)

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestHTTPSOnly: who comes in the clear is sent to https, and waits for nothing.
func TestHTTPSOnly(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
		c.Edge.HTTPSPort, c.Edge.HSTS = 8443, "max-age=60"
		c.TrustedProxies = loopback
	})
	for _, c := range []struct{ line, header, location string }{
		{"GET /a?b=c HTTP/1.1", "Host: Files.example.com:8080\r\n", "https://files.example.com:8443/a?b=c"},
		{"GET /a%2Fb%0d%0aX:%20y? HTTP/1.1", "Host: h.\r\n", "https://h:8443/a%2Fb%0d%0aX:%20y?"},
		{"GET //evil.example/ HTTP/1.1", "Host: h\r\n", "https://h:8443//evil.example/"},
		{"GET /\\evil.example/ HTTP/1.1", "Host: h\r\n", "https://h:8443/%5Cevil.example/"},
		{"GET http://other/x HTTP/1.1", "Host: other\r\n", "https://other:8443/x"},
		{"GET http://other/x HTTP/1.1", "Host: h\r\n", ""},
		{"GET http://other?x HTTP/1.1", "Host: other\r\n", "https://other:8443/?x"},
		{"POST / HTTP/1.1", "Host: [2001:DB8::1]:80\r\nContent-Length: 5\r\n", "https://[2001:db8::1]:8443/"},
		{"GET /.kgate/tickets HTTP/1.1", "Host: h\r\n", "https://h:8443/.kgate/tickets"},
		{"GET / HTTP/1.1", "Host: h\r\nX-Forwarded-Proto: http, https\r\n", "https://h:8443/"},
		{"GET / HTTP/1.0", "", ""},
		{"GET / HTTP/1.1", "Host: h/evil\r\n", ""},
		{"GET / HTTP/1.1", "Host: \r\n", ""},
	} {
		conn := g.dial()
		conn.send(c.line + "\r\n" + c.header + "\r\n")
		res := conn.response()
		want := map[bool]int{true: 308, false: 400}[c.location != ""]
		if res.StatusCode != want || res.Header.Get("Location") != c.location || res.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s %q: got %v %v, want %d to %q", c.line, c.header, res.Status, res.Header, want, c.location)
		}
	}
	if n := g.metered.conns.Load(); n != 0 {
		t.Errorf("%d connections to the upstream", n)
	}
	res := g.do(g.request("GET", "/", "X-Forwarded-Proto", "https"))
	_ = res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Strict-Transport-Security") != "max-age=60" {
		t.Errorf("behind a trusted proxy: %v %v", res.Status, res.Header)
	}
	req, err := http.NewRequest("PUT", g.url+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	h2 := h2cClient(t)
	h2.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if res, err = h2.Do(req); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 308 || res.Header.Get("Location") != "https://127.0.0.1:8443/x" {
		t.Errorf("over HTTP/2: %v %v", res.Status, res.Header)
	}
}

// TestHTTPSOnlyStranger: only a trusted proxy says that a client uses https.
func TestHTTPSOnlyStranger(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) { c.Edge.HTTPSPort = 443 })
	res := g.do(g.request("GET", "/", "X-Forwarded-Proto", "https"))
	_ = res.Body.Close()
	if res.StatusCode != 308 || res.Header.Get("Location") != "https://127.0.0.1/" {
		t.Errorf("got %v %v", res.Status, res.Header)
	}
}

// TestTrustedProxySays: what a trusted proxy says of a client counts, whatever its address
// looks like and however it calls TLS.
func TestTrustedProxySays(t *testing.T) {
	up, seen := wireUpstream(t, wireOK)
	h, err := New(Config{
		Admitter: newSemaphore(t, 1), Edge: Edge{HTTPSPort: 443}, TrustedProxies: prefixes("fe80::/10", "10.0.0.0/8"),
		Pools: []Pool{{Name: "p", Upstreams: []*url.URL{up}}}, Routes: []Route{{Pool: "p"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, c := range []struct{ remote, proto string }{
		{"[fe80::1%eth0]:4000", "https"}, {"[::ffff:10.0.0.1]:4000", "https"}, {"10.0.0.1:4000", "HTTPS"}, {"10.0.0.1:4000", "wss"},
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = c.remote
		r.Header = http.Header{"X-Forwarded-Proto": {c.proto}, "X-Forwarded-Host": {"a"}, "Connection": {"X-Forwarded-Host"}}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("%v: got %d", c, w.Code)
			continue
		}
		got := fields(<-seen, "X-Forwarded-Proto", "X-Forwarded-Host")
		if !slices.Equal(got, []string{"X-Forwarded-Host: example.com", "X-Forwarded-Proto: " + c.proto}) {
			t.Errorf("%v: the upstream got %q", c, got)
		}
	}
}

// TestHSTS: every answer over TLS has it, one time; also the gateway's own.
func TestHSTS(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1")
	}), func(c *Config) {
		c.Edge.HTTPSPort, c.Edge.HSTS = 443, "max-age=60; includeSubDomains"
		c.Routes[0].Match.PathPrefix = "/a"
	})
	g.listen(downstream.Config{TLS: ownTLS()})
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	for path, status := range map[string]int{"/a": 200, "/b": 404, "/a/../": 400} {
		req := g.request("GET", "")
		req.URL.Scheme, req.URL.Host, req.URL.Path = "https", g.addr, path
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header["Strict-Transport-Security"]; res.StatusCode != status || !slices.Equal(got, []string{"max-age=60; includeSubDomains"}) {
			t.Errorf("%s: %v %q", path, res.Status, got)
		}
	}
}

// TestAccess: who may not is refused before the line; who may is known as the trusted
// proxies say.
func TestAccess(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			up.pass(r)
		}
	}), func(c *Config) {
		c.TrustedProxies = loopback
		c.Edge.Access = Access{Allow: prefixes("10.0.0.0/8", "2001:db8::/32"), Deny: prefixes("10.6.6.6/32")}
		c.Routes = []Route{
			{Pool: "p", Match: Match{PathPrefix: "/hold"}},
			{Pool: "p", Match: Match{PathPrefix: "/team"}, Access: Access{Allow: prefixes("10.1.0.0/16")}},
			{Pool: "p", Match: Match{PathPrefix: "/most"}, Access: Access{Deny: prefixes("10.1.0.0/16")}},
			{Pool: "p"},
		}
	})
	hold := g.dial()
	hold.send("GET /hold HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
	up.awaitEntered(t) // k is reached: whoever may has to wait
	for _, c := range []struct {
		path, from string
		denied     bool
	}{
		{"/", "10.0.0.1", false},
		{"/", "2001:db8::7", false},
		{"/", "10.6.6.6", true},
		{"/", "192.0.2.1", true},
		{"/", "10.0.0.1, 192.0.2.1", true}, // what is before the last, the client may have written
		{"/", "192.0.2.1, 10.0.0.1", false},
		{"/", "10.0.0.1, nonsense", true},
		{"/", "", true}, // the proxy itself
		{"/team", "10.1.2.3", false},
		{"/team", "10.0.0.1", true},
		{"/most", "10.1.2.3", true},
		{"/most", "10.0.0.1", false},
		{"/nowhere/../", "192.0.2.1", true},
		{"/.kgate/tickets", "192.0.2.1", true},
	} {
		conn := g.dial()
		conn.send("GET " + c.path + " HTTP/1.1\r\nHost: h\r\nPrefer: wait=0\r\nX-Forwarded-For: " + c.from + "\r\n\r\n")
		res := conn.response()
		body, _ := io.ReadAll(io.LimitReader(res.Body, max(res.ContentLength, 0)))
		if want := map[bool]int{true: 403, false: 503}[c.denied]; res.StatusCode != want || c.denied && !strings.Contains(string(body), "#forbidden") {
			t.Errorf("%s from %s: got %v %s, want %d", c.path, c.from, res.Status, body, want)
		}
	}
	close(up.proceed)
	hold.response()
}

// TestAccessOfStrangers: a client that is no trusted proxy is who its connection says.
func TestAccessOfStrangers(t *testing.T) {
	for _, c := range []struct {
		access Access
		status int
	}{
		{Access{Allow: prefixes("127.0.0.1/32")}, 200},
		{Access{Allow: prefixes("10.0.0.1/32")}, 403},
		{Access{Deny: prefixes("127.0.0.0/8")}, 403},
	} {
		g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(cfg *Config) { cfg.Edge.Access = c.access })
		res := g.do(g.request("GET", "/", "X-Forwarded-For", "10.0.0.1"))
		_ = res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%v: got %v", c.access, res.Status)
		}
	}
}

// TestAccessAndTickets: nobody gets by a ticket what a route keeps from them.
func TestAccessAndTickets(t *testing.T) {
	cfg := Config{
		Admitter: open{}, Tickets: &counter{}, Pools: []Pool{{Name: "p", Upstreams: []*url.URL{mustURL(t, "http://h")}, Tickets: true}},
		Routes: []Route{{Pool: "p", Access: Access{Deny: prefixes("10.0.0.0/8")}}},
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "tickets") {
		t.Errorf("got %v", err)
	}
}

// TestTCPAccess: a TCP client that may not is reset, and takes no place in line.
func TestTCPAccess(t *testing.T) {
	for _, c := range []struct {
		access  Access
		allowed bool
	}{
		{Access{}, true},
		{Access{Allow: loopback}, true},
		{Access{Allow: prefixes("10.0.0.0/8")}, false},
		{Access{Allow: loopback, Deny: prefixes("127.0.0.1/32")}, false},
	} {
		up := newTCPUpstream(t, func(conn socket) { _, _ = io.WriteString(conn, "hello") })
		g := newTCPGateway(t, 1, []*url.URL{up.url}, func(cfg *Config) { cfg.TCP[0].Access = c.access })
		said := ""
		conn, err := net.Dial("tcp", g.addr) // the reset may come that soon
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(patience))
			var b []byte
			b, err = io.ReadAll(conn)
			said = string(b)
			_ = conn.Close()
		}
		if c.allowed && (err != nil || said != "hello") || !c.allowed && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: got %q, %v", c.access, said, err)
		}
		if !c.allowed && len(g.records.done) != 0 {
			t.Errorf("%v: it stood in line", c.access)
		}
	}
}
