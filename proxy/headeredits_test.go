package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wireUpstream answers each request with the given bytes, and shows what it has read: the
// header, and the body if it comes in chunks.
func wireUpstream(t *testing.T, answer string) (at *url.URL, seen chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen = make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for br := bufio.NewReader(conn); ; {
					text, err := readWire(br)
					if err != nil {
						return
					}
					seen <- text
					_, _ = io.WriteString(conn, answer)
				}
			}()
		}
	}()
	return mustURL(t, "http://"+l.Addr().String()), seen
}

func readWire(br *bufio.Reader) (string, error) {
	var text strings.Builder
	for end := "\r\n"; ; {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		text.WriteString(line)
		switch {
		case line == "Transfer-Encoding: chunked\r\n":
			end = "0\r\n"
		case line == end && end == "0\r\n":
			end = "\r\n" // of the trailer
		case line == end:
			return text.String(), nil
		}
	}
}

// edits are those of the tests' route.
func edits(c *Config) {
	c.Gateway = "gw-1"
	c.Edge.RequestIDHeader = "X-Request-ID"
	c.Routes[0].RequestHeaders = HeaderEdits{
		Remove: []string{"Cookie", "User-Agent"},
		Set:    []Field{{"X-Real-IP", "{client}"}, {"X-Where", "{host} {pool} {gateway} {request_id}"}, {"X-Fixed", "one"}},
		Add:    []Field{{"x-more", "two"}, {"X-More", "three"}},
	}
	c.Routes[0].ResponseHeaders = HeaderEdits{
		Remove: []string{"Server", "Server-Timing"},
		Set:    []Field{{"Cache-Control", "no-store"}, {"X-Where", "{pool}"}},
		Add:    []Field{{"Vary", "Origin"}},
	}
}

// fields returns the lines of a header of these names, in the order of the names.
func fields(wire string, names ...string) []string {
	var found []string
	for line := range strings.SplitSeq(wire, "\r\n") {
		name, _, _ := strings.Cut(line, ":")
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			found = append(found, line)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, ":")
		nameB, _, _ := strings.Cut(b, ":")
		return strings.Compare(nameA, nameB)
	})
	return found
}

const wireOK = "HTTP/1.1 200 OK\r\nServer: up\r\nCache-Control: public\r\nVary: Accept\r\nX-Request-Id: of-upstream\r\nContent-Length: 2\r\n\r\nok"

// TestHeaderEdits: a request and an answer are changed as the route says, byte for byte.
func TestHeaderEdits(t *testing.T) {
	to, seen := wireUpstream(t, wireOK)
	g := newGateway(t, 1, http.NotFoundHandler(), edits, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{to} })
	for _, c := range []struct{ name, send, id string }{
		{"plain", "", ""},
		{"what the client says", "Cookie: a\r\nX-Real-IP: 203.0.113.9\r\nX-Fixed: client\r\nX-More: one\r\n", ""},
		{"in capitals", "COOKIE: a\r\nX-REAL-IP: 203.0.113.9\r\nx-fixed: a\r\nX-FIXED: b\r\nX-More: one\r\n", ""},
		{"with underscores", "X_Real_IP: 203.0.113.9\r\nX-Real_Ip: 203.0.113.9\r\nx_fixed: a\r\nX.Fixed: a\r\nX_Request_ID: evil\r\nX-More: one\r\n", ""},
		{"for one hop", "Connection: X-Real-IP, X-Fixed, X-More, X-Request-ID\r\nX-More: zero\r\n", ""},
		{"its id", "X-Request-ID: abc.DEF-0:1/2+3=@~_\r\n", "abc.DEF-0:1/2+3=@~_"},
	} {
		conn := g.dial()
		conn.send("GET / HTTP/1.1\r\nHost: Files.example.com:8080\r\nUser-Agent: me\r\n" + c.send + "\r\n")
		res := conn.response()
		wire := <-seen
		id := res.Header.Get("X-Request-ID")
		if c.id != "" && id != c.id {
			t.Errorf("%s: id %q, want %q", c.name, id, c.id)
		}
		want := []string{"X-Fixed: one"}
		if strings.Contains(c.send, "X-More: one") {
			want = append(want, "X-More: one")
		}
		want = append(want, "X-More: two", "X-More: three", "X-Real-Ip: 127.0.0.1", "X-Request-Id: "+id, "X-Where: Files.example.com:8080 p gw-1 "+id)
		got := fields(wire, "x-fixed", "x_fixed", "x-more", "x_more", "x-real-ip", "x_real_ip", "x-real_ip", "x-request-id", "x_request_id", "x-where", "cookie", "user-agent")
		if !slices.Equal(got, want) {
			t.Errorf("%s: the upstream got %q, want %q", c.name, got, want)
		}
		h := res.Header
		if h.Get("Server")+h.Get("Server-Timing") != "" || !slices.Equal(h["Cache-Control"], []string{"no-store"}) ||
			!slices.Equal(h["Vary"], []string{"Accept", "Origin"}) || !slices.Equal(h["X-Where"], []string{"p"}) || len(h["X-Request-Id"]) != 1 || len(id) < 10 {
			t.Errorf("%s: the client got %v", c.name, h)
		}
	}
}

// TestHeaderEditsTrailer: what the route says in the header no client says behind the body,
// nor what a message is read by, nor what it has not announced.
func TestHeaderEditsTrailer(t *testing.T) {
	to, seen := wireUpstream(t, wireOK)
	g := newGateway(t, 1, http.NotFoundHandler(), edits, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{to} })
	conn := g.dial()
	conn.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Real-Ip, X-Sum, X-Forwarded-For, Forwarded, X-Request-Id, Connection\r\n\r\n2\r\nab\r\n0\r\n" +
		"X-Real-Ip: 203.0.113.9\r\nX-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\nX-Request-Id: forged\r\nX-Sum: 7\r\nx_real_ip: 203.0.113.9\r\nX-Late: 1\r\n" +
		"Host: evil\r\nConnection: close\r\nContent-Length: 9\r\nTransfer-Encoding: gzip\r\n\r\n")
	if res := conn.response(); res.StatusCode != 200 {
		t.Fatalf("got %v", res.Status)
	}
	wire := <-seen
	if got := fields(wire, "trailer", "forged", "x-real-ip", "x_real_ip", "x-sum", "x-late", "evil", "connection", "content-length", "gzip"); !slices.Equal(got, []string{"Trailer: X-Sum", "X-Real-Ip: 127.0.0.1", "X-Sum: 7"}) {
		t.Errorf("the upstream got %q in %q", got, wire)
	}
	conn = g.dial()
	conn.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\n\r\n")
	if res := conn.response(); res.StatusCode != 400 {
		t.Errorf("a trailer that is to have a host: got %v", res.Status)
	}
}

var madeID = regexp.MustCompile("^X-Request-Id: [0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")

// TestPlaceholdersAreOneLine: whatever a client sends as host or id, its request has one
// header and one end.
func TestPlaceholdersAreOneLine(t *testing.T) {
	to, seen := wireUpstream(t, wireOK)
	g := newGateway(t, 1, http.NotFoundHandler(), edits, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{to} })
	for _, header := range []string{
		"Host: h\rX-Evil: 1\r\n", "Host: h\x00\r\n", "Host: h\r\n X-Evil: 1\r\n", "Host: h X-Evil: 1\r\n", "Host: \"h\"\r\n", "Host: {client}\r\n",
		"Host: h\r\nX-Request-ID: a\rX-Evil: 1\r\n", "Host: h\r\nX-Request-ID: a\r\n X-Evil: 1\r\n", "Host: h\r\nX-Request-ID: a\x00\r\n",
		"Host: h\r\nX-Request-ID: a, b\r\n", "Host: h\r\nX-Request-ID: <b>\r\n", "Host: h\r\nX-Request-ID: a\r\nX-Request-ID: b\r\n",
		"Host: h\r\nX-Request-ID: {host}\r\n", "Host: h\r\nX-Request-ID: \r\n", "Host: h\r\nX-Request-ID: " + strings.Repeat("a", maxRequestID+1) + "\r\n",
	} {
		conn := g.dial()
		conn.send("GET / HTTP/1.1\r\n" + header + "\r\n")
		res := conn.response()
		if res.StatusCode == 400 {
			continue
		}
		wire := <-seen
		if strings.Count(wire, "\n") != strings.Count(wire, "\r\n") || strings.Count(wire, "\r") != strings.Count(wire, "\r\n") || len(fields(wire, "x-evil")) > 0 {
			t.Errorf("%q: the upstream got %q", header, wire)
		}
		if got := fields(wire, "x-request-id"); len(got) != 1 || !madeID.MatchString(got[0]) {
			t.Errorf("%q: the upstream got the id %q", header, got)
		}
		if len(fields(wire, "x-where")) != 1 {
			t.Errorf("%q: the upstream got %q", header, wire)
		}
	}
	select {
	case wire := <-seen:
		t.Errorf("the upstream saw one more request: %q", wire)
	default:
	}
}

// TestHeaderEditsOfEveryAnswer: interim answers pass as they are; answers without a body
// and those that end HTTP are changed like the others.
func TestHeaderEditsOfEveryAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer, method string
		status         int
	}{
		"HEAD":       {"HTTP/1.1 200 OK\r\nServer: up\r\nContent-Length: 7\r\n\r\n", "HEAD", 200},
		"304":        {"HTTP/1.1 304 Not Modified\r\nServer: up\r\nEtag: \"1\"\r\n\r\n", "GET", 304},
		"204":        {"HTTP/1.1 204 No Content\r\nServer: up\r\n\r\n", "GET", 204},
		"an error":   {"HTTP/1.1 503 Service Unavailable\r\nServer: up\r\nContent-Length: 0\r\n\r\n", "GET", 503},
		"hints":      {"HTTP/1.1 103 Early Hints\r\nServer: early\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nServer: up\r\nContent-Length: 0\r\n\r\n", "GET", 200},
		"an upgrade": {"HTTP/1.1 101 Switching Protocols\r\nServer: up\r\nX-Request-Id: of-upstream\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", "GET", 101},
	} {
		t.Run(name, func(t *testing.T) {
			to, _ := wireUpstream(t, c.answer)
			g := newGateway(t, 1, http.NotFoundHandler(), edits, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{to} })
			conn := g.dial()
			conn.send(c.method + strings.TrimPrefix(upgradeRequest, "GET"))
			res, err := http.ReadResponse(conn.br, &http.Request{Method: c.method})
			if name == "hints" && err == nil {
				if res.StatusCode != 103 || res.Header.Get("Server") != "early" || res.Header.Get("X-Where") != "" || res.Header.Get("X-Request-Id") != "" {
					t.Errorf("the hints: %v %v", res.Status, res.Header)
				}
				res, err = http.ReadResponse(conn.br, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			h := res.Header
			if res.StatusCode != c.status || h.Get("Server") != "" || h.Get("Cache-Control") != "no-store" || !slices.Equal(h["X-Where"], []string{"p"}) || len(h["X-Request-Id"]) != 1 || h.Get("X-Request-Id") == "of-upstream" {
				t.Errorf("got %v %v", res.Status, h)
			}
		})
	}
}

// TestHeaderEditsHTTP2: the same over HTTP/2, on both sides.
func TestHeaderEditsHTTP2(t *testing.T) {
	seen := make(chan *http.Request, 10)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.Header().Set("Server", "up")
		w.Header().Set("Link", "<a>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "ok")
	}), edits, func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	for _, host := range []string{"files.example.com", "h"} {
		early := ""
		req := g.request("GET", "/", "X-Real-IP", "203.0.113.9", "Cookie", "a", "X_Fixed", "b")
		req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { early = h.Get("Server") + h.Get("X-Where"); return nil },
		}))
		req.Host = host
		res, err := h2cClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		r := <-seen
		h, id := r.Header, res.Header.Get("X-Request-ID")
		if r.ProtoMajor != 2 || h.Get("X-Real-IP") != "127.0.0.1" || h.Get("X-Where") != host+" p gw-1 "+id || h.Get("Cookie")+h.Get("X_Fixed")+h.Get("User-Agent") != "" || h.Get("X-Request-ID") != id {
			t.Errorf("%s: the upstream got %v", host, h)
		}
		if res.ProtoMajor != 2 || res.Header.Get("Server") != "" || res.Header.Get("X-Where") != "p" || early != "up" {
			t.Errorf("%s: the client got %v, early %q", host, res.Header, early)
		}
	}
}

// TestHeaderEditsNotOnOwnAnswers: a refusal is the gateway's, and says so itself.
func TestHeaderEditsNotOnOwnAnswers(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler(), edits)
	g.upstream.Close()
	res := g.do(g.request("GET", "/"))
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	id := res.Header.Get("X-Request-ID")
	if res.StatusCode != 502 || res.Header.Get("X-Where") != "" || !strings.Contains(string(body), `"request_id":"`+id+`"`) || id == "" {
		t.Errorf("got %v %v %s", res.Status, res.Header, body)
	}
	res = g.do(g.request("GET", "/", "Accept", "text/html", "X-Request-ID", "mine"))
	body, _ = io.ReadAll(res.Body)
	_ = res.Body.Close()
	if string(body) != "502 Bad Gateway: the upstream could not be reached or broke off (request mine)\n" {
		t.Errorf("got %q", body)
	}
}

// TestBadHeaderEdits: a Handler takes no edits that the file may not have.
func TestBadHeaderEdits(t *testing.T) {
	for _, e := range []HeaderEdits{
		{Remove: []string{"Content-Length"}},
		{Remove: []string{""}},
		{Set: []Field{{"Transfer-Encoding", "chunked"}}},
		{Add: []Field{{"Kgate-Fence", "a"}}},
		{Set: []Field{{"X-A", "a\r\nX-B: b"}}},
		{Set: []Field{{"X-A", "{nobody}"}}},
		{Add: []Field{{"X-A: b\r\nX-B", "b"}}},
		{Add: []Field{{"Connection", "X-A"}}},
	} {
		for where, route := range map[string]Route{"requests": {RequestHeaders: e}, "answers": {ResponseHeaders: e}} {
			route.Upstreams = []*url.URL{{Scheme: "http", Host: "h"}}
			if _, err := New(Config{Routes: []Route{route}}); err == nil {
				t.Errorf("%v in %s is taken", e, where)
			}
		}
	}
	if _, err := New(Config{Edge: Edge{RequestIDHeader: "Host"}}); err == nil {
		t.Error("Host is taken for ids")
	}
}

// TestRequestIDInLogs: the id is in the access log and at the request's span.
func TestRequestIDInLogs(t *testing.T) {
	for _, format := range []AccessFormat{AccessStructured, AccessJSON} {
		lines, change := accessLines(format)
		recorder, sampled := traced(1)
		g := newGateway(t, 1, http.HandlerFunc(echoRequest), change, edits, sampled)
		res := g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		id := res.Header.Get("X-Request-ID")
		if line := string(<-lines); id == "" || !strings.Contains(line, `"request_id":"`+id+`"`) {
			t.Errorf("id %q: %s", id, line)
		}
		span := byName(t, awaitSpans(t, recorder, 3))["GET /"]
		if got := attributeOf(span, "http.request.header.x-request-id").AsStringSlice(); !slices.Equal(got, []string{id}) {
			t.Errorf("the span has %q, want %q", got, id)
		}
	}
}

// BenchmarkHeaders: what header edits and ids cost, and that without them nothing does.
func BenchmarkHeaders(b *testing.B) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"off", func(*Config) {}},
		{"id", func(c *Config) { c.Edge.RequestIDHeader = "X-Request-ID" }},
		{"fixed", func(c *Config) {
			c.Routes[0].RequestHeaders.Set = []Field{{"X-A", "a"}}
			c.Routes[0].ResponseHeaders.Set = []Field{{"X-B", "b"}}
		}},
		{"client", func(c *Config) { c.Routes[0].RequestHeaders.Set = []Field{{"X-Real-IP", "{client}"}} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			handler := openHandler(b, &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, c.change)
			handler.current.Load().balancers["p"].backends[0].requests = without{cannedTransport{}}
			req := httptest.NewRequest(http.MethodGet, "http://h/x", http.NoBody)
			req.Header = http.Header{"User-Agent": {"bench"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}}
			w := &blankWriter{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				handler.ServeHTTP(w, req)
			}
		})
	}
}

// TestOwnedNameIsNotPlain: what a route sets or removes in requests no client can say in another
// spelling, whichever one the configuration has.
func TestOwnedNameIsNotPlain(t *testing.T) {
	to, wire := wireUpstream(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	g := newGateway(t, 1, nil, func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{to}
		c.Edge.RequestIDHeader = "X_Req_Id"
		c.Routes[0].RequestHeaders = HeaderEdits{Remove: []string{"X.Gone"}, Set: []Field{{"X_User", "gateway"}}}
	})
	for _, sep := range []string{"-", "_", "."} {
		res := g.do(g.request("GET", "/", "X"+sep+"User", "forged", "X"+sep+"Req"+sep+"Id", "forged{}", "X"+sep+"Gone", "forged"))
		_ = res.Body.Close()
		if got := <-wire; strings.Contains(got, "forged") || !strings.Contains(got, "\r\nX_user: gateway\r\n") || !strings.Contains(got, "\r\nX_req_id: ") {
			t.Errorf("with %q, the upstream got %q", sep, got)
		}
	}
}
