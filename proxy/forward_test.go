package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
)

// echoRequest answers with what it got.
func echoRequest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Seen-Uri", r.RequestURI)
	w.Header().Set("Seen-Host", r.Host)
	w.Header().Set("Seen-Method", r.Method)
	w.Header().Set("Seen-Proto", r.Proto)
	for name, values := range r.Header {
		for _, v := range values {
			w.Header().Add("Got-"+name, v)
		}
	}
}

// TestRequestHeaders: what an upstream gets to see.
func TestRequestHeaders(t *testing.T) {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	sent := http.Header{
		"X-Forwarded-For":    {"1.1.1.1"},
		"X-Forwarded-Host":   {"evil"},
		"X-Forwarded-Proto":  {"https"},
		"X-Forwarded-Port":   {"1"},
		"X_forwarded_for":    {"2.2.2.2"},
		"Forwarded":          {"for=1.1.1.1"},
		"Kgate-Fence":        {"forged"},
		"Kgate_fence":        {"forged"},
		"Kgateway":           {"kept"},
		"X-Forward":          {"kept"},
		"Connection":         {"X-Hop"},
		"X-Hop":              {"gone"},
		"Keep-Alive":         {"5"},
		"Proxy-Authenticate": {"x"},
		"Via":                {"1.0 other"},
		"Accept-Encoding":    {"br"},
	}
	for _, trusted := range []bool{false, true} {
		g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
			if trusted {
				c.TrustedProxies = []netip.Prefix{loopback}
			}
		})
		req := g.request("GET", "/a//b%2Fc;d?x=%zz;y")
		req.Host = "example.com"
		req.Header = sent.Clone()
		res := g.do(req)
		_ = res.Body.Close()
		want := map[string][]string{
			"Seen-Uri":              {"/a//b%2Fc;d?x=%zz;y"},
			"Seen-Host":             {"example.com"},
			"Got-X-Forwarded-For":   {"127.0.0.1"},
			"Got-X-Forwarded-Host":  {"example.com"},
			"Got-X-Forwarded-Proto": {"http"},
			"Got-X-Forwarded-Port":  nil,
			"Got-X_forwarded_for":   nil,
			"Got-Forwarded":         {"for=127.0.0.1;host=example.com;proto=http"},
			"Got-Kgate-Fence":       nil,
			"Got-Kgate_fence":       nil,
			"Got-Kgateway":          {"kept"},
			"Got-X-Forward":         {"kept"},
			"Got-X-Hop":             nil,
			"Got-Keep-Alive":        nil,
			"Got-Via":               {"1.0 other", "1.1 " + g.handler.current.Load().pseudonym},
			"Got-Accept-Encoding":   {"br"},
			"Got-User-Agent":        {"Go-http-client/1.1"},
		}
		if trusted {
			want["Got-X-Forwarded-For"] = []string{"1.1.1.1, 127.0.0.1"}
			want["Got-X-Forwarded-Host"] = []string{"evil"}
			want["Got-X-Forwarded-Proto"] = []string{"https"}
			want["Got-X-Forwarded-Port"] = []string{"1"}
			want["Got-Forwarded"] = []string{"for=1.1.1.1, for=127.0.0.1;host=example.com;proto=http"}
		}
		for name, values := range want {
			if got := res.Header[name]; !reflect.DeepEqual(got, values) {
				t.Errorf("trusted %v: %s: %q, want %q", trusted, name, got, values)
			}
		}
	}
}

// TestAnswerHeaders: the upstream's header comes through with the gateway's
// added to it.
func TestAnswerHeaders(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server-Timing", "db;dur=53")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "gone")
		w.Header().Set("X-Kept", "kept")
		w.WriteHeader(http.StatusTeapot)
	}))
	res := g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	timing := res.Header["Server-Timing"]
	if len(timing) != 2 || timing[0] != "db;dur=53" || !strings.HasPrefix(timing[1], `kgate;desc="queue";dur=`) {
		t.Errorf("Server-Timing %q", timing)
	}
	if res.StatusCode != 418 || res.Header.Get("X-Hop") != "" || res.Header.Get("X-Kept") != "kept" {
		t.Errorf("got %v %v", res.Status, res.Header)
	}
}

// TestRoutesAndPools: strip_prefix, base path, routes without admission, 404.
func TestRoutesAndPools(t *testing.T) {
	up := http.HandlerFunc(echoRequest)
	g := newGateway(t, 1, up, func(c *Config) {
		base := *c.Pools[0].Upstreams[0]
		base.Path = "/base"
		c.Routes = []Route{
			{Match: Match{PathPrefix: "/free/"}, Upstreams: c.Pools[0].Upstreams},
			{Match: Match{PathPrefix: "/based/"}, StripPrefix: "/based", Upstreams: []*url.URL{&base}},
			{Pool: "p", Match: Match{PathPrefix: "/files/"}, StripPrefix: "/files"},
		}
	})
	for path, want := range map[string]string{"/free/x": "/free/x", "/based/x?q": "/base/x?q", "/files/x%2F": "/x%2F", "/": ""} {
		res := g.do(g.request("GET", path))
		_ = res.Body.Close()
		if got := res.Header.Get("Seen-Uri"); got != want || (res.StatusCode == 404) != (want == "") {
			t.Errorf("%s: the upstream saw %q, status %d", path, got, res.StatusCode)
		}
		if timed := res.Header.Get("Server-Timing") != ""; timed != (path == "/files/x%2F") {
			t.Errorf("%s: Server-Timing %v", path, timed)
		}
	}
	g.sem.mu.Lock()
	if g.sem.maxHeld != 1 {
		t.Errorf("%d slots held", g.sem.maxHeld)
	}
	g.sem.mu.Unlock()
	seen := map[string]int{}
	for range 3 {
		seen[g.records.next(t).Pool]++
	}
	if seen["p"] != 1 || seen[""] != 2 || len(g.records.done) != 0 || len(g.records.admitted) != 1 {
		t.Errorf("records by pool: %v", seen)
	}
}

// TestMethods: every method goes through, known to the router or not.
func TestMethods(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "X-OWN"} {
		res := g.do(g.request(method, "/"))
		_ = res.Body.Close()
		if got := res.Header.Get("Seen-Method"); res.StatusCode != 200 || got != method {
			t.Errorf("%s: status %d, the upstream saw %q", method, res.StatusCode, got)
		}
	}
	c := g.dial()
	c.send("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
	if res := c.response(); res.StatusCode != 200 {
		t.Errorf("OPTIONS *: status %d", res.StatusCode)
	}
	c = g.dial()
	c.send("OPTIONS / HTTP/1.0\r\n\r\n") // HAProxy's health check
	if res := c.response(); res.StatusCode != 200 || res.Header.Get("Got-Via") != "1.0 "+g.handler.current.Load().pseudonym {
		t.Errorf("HTTP/1.0: status %d, Via %q", res.StatusCode, res.Header.Get("Got-Via"))
	}
}

// TestInterim: 103 Early Hints and trailers pass, bodies too.
func TestInterim(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", r.Trailer.Get("X-In"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		w.Header().Set(http.TrailerPrefix+"Content-Length", "1") // by which a message is read
	}))
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") != "" {
				hints++
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, "POST", g.url, io.NopCloser(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-In": {"sum"}}
	res := g.do(req)
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(b) != "hello" || hints != 1 {
		t.Errorf("body %q, %v, %d hints", b, err, hints)
	}
	if rec := g.records.next(t); rec.Status != 200 || rec.UpstreamStatus != 200 || res.Header.Get("Server-Timing") == "" {
		t.Errorf("record %+v, header %v", rec, res.Header)
	}
	if res.Trailer.Get("X-Sum") != "sum" || res.Trailer.Get("X-Late") != "late" || len(res.Trailer) != 2 {
		t.Errorf("trailers %v", res.Trailer)
	}
}

// TestEarlyAnswer: an answer given before the body is there does not wait for it. By
// itself net/http waits for a short one.
func TestEarlyAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_ = rc.Flush()
			up.pass(r)
		}))
		for _, length := range []int{1_000, 1_000_000} {
			c := g.dial()
			c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nsome", length))
			if res := c.response(); res.StatusCode != 413 {
				t.Errorf("status %d", res.StatusCode)
			}
			up.proceed <- struct{}{}
			g.sem.await(0, 0)
		}
	})
}

// TestContinueOnce: a client is told once to go on, however often the upstream says so.
func TestContinueOnce(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusContinue)
	}))
	c := g.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if res := c.response(); res.StatusCode != http.StatusContinue {
		t.Fatalf("status %d", res.StatusCode)
	}
	c.send("hello")
	if res := c.response(); res.StatusCode != http.StatusOK {
		t.Errorf("status %d after the body", res.StatusCode)
	}
}

// TestContinueNotAwaited: a client that sends its body without being told to go on does not
// keep its slot waiting for an upstream that never says so.
func TestContinueNotAwaited(t *testing.T) {
	for _, size := range []int{5, 300_000} { // with the head, and behind it
		inVirtualTime(t, func(t *testing.T) { testContinueNotAwaited(t, size) })
	}
}

func testContinueNotAwaited(t *testing.T, size int) {
	l := listen(t)
	defer l.Close()
	waited := make(chan time.Duration, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		began := time.Now()
		if n, err := io.Copy(io.Discard, req.Body); n != int64(size) {
			t.Errorf("%d bytes of the body came, %v", n, err)
		}
		waited <- time.Since(began)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}()
	g := newGateway(t, 1, nil, func(c *Config) { c.Pools[0].Upstreams[0] = mustURL(t, "http://"+l.Addr().String()) })
	c := g.dial()
	c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size) + strings.Repeat("x", size))
	if took := <-waited; took > 0 { // package upstream waits for a second otherwise
		t.Errorf("the body came after %v", took)
	}
}

// TestHTTP2: h2c on both sides, many streams over one connection, trailers as
// gRPC uses them.
func TestHTTP2(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		g := newGateway(t, 3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			echoRequest(w, r)
			_, _ = io.Copy(w, r.Body)
			w.Header().Set("Grpc-Status", "0")
		}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr}
		errs := make(chan error, 20)
		for range cap(errs) {
			go func() {
				res, err := client.Post(g.url, "application/grpc", strings.NewReader("hello"))
				if err != nil {
					errs <- err
					return
				}
				b, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err == nil && (res.ProtoMajor != 2 || string(b) != "hello" || res.Trailer.Get("Grpc-Status") != "0" ||
					res.Header.Get("Got-Via") != "2.0 "+g.handler.current.Load().pseudonym || (res.Header.Get("Seen-Proto") == "HTTP/2.0") != (scheme == "h2c")) {
					err = fmt.Errorf("got %v %q, header %v, trailer %v", res.Proto, b, res.Header, res.Trailer)
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(scheme, err)
			}
		}
		g.sem.mu.Lock()
		if g.sem.maxHeld > 3 {
			t.Errorf("%d at once", g.sem.maxHeld)
		}
		g.sem.mu.Unlock()
	}
}

// TestLargeBody: 20 MiB pass unharmed.
func TestLargeBody(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 20<<16)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	}))
	res := g.do(g.request("GET", "/"))
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestPoolWithoutUpstreams: it is legal, for tickets and for a program's own handlers,
// and no route may lead to it.
func TestPoolWithoutUpstreams(t *testing.T) {
	cfg := Config{Pools: []Pool{{Name: "a"}}}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Routes = []Route{{Pool: "a"}}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `pool "a" has no upstream for requests`) {
		t.Errorf("with a route: %v", err)
	}
}

// TestConfigValidate: every error at once.
func TestConfigValidate(t *testing.T) {
	up := []*url.URL{{Scheme: "http", Host: "h"}}
	cfg := Config{
		Pools: []Pool{
			{Name: "", Upstreams: up},
			{Name: "a", Upstreams: up},
			{Name: "a", Upstreams: nil},
			{Name: "b", Upstreams: []*url.URL{nil, {Scheme: "ftp", Host: "h"}, {Scheme: "http"}, {Scheme: "http", Host: "h", User: url.User("u")}, {Scheme: "http", Host: "h", RawQuery: "q"}}, Transport: Transport{DialTimeout: -1}},
		},
		Routes: []Route{
			{Pool: "c"},
			{Pool: "a", Upstreams: up, Match: Match{PathPrefix: "x", Methods: []string{"CONNECT"}}, StripPrefix: "y"},
			{},
			{Upstreams: up, Transport: Transport{DialTimeout: -1}},
		},
	}
	_, err := New(cfg)
	if err == nil {
		t.Fatal("accepted")
	}
	if got := strings.Count(err.Error(), errConfig.Error()); got != 17 {
		t.Errorf("%d errors:\n%v", got, err)
	}
	if _, err := downstream.NewServer(downstream.Config{ReadHeaderTimeout: -1, MaxHeaderBytes: -1}); err == nil {
		t.Error("a server without handler is accepted")
	}
}
