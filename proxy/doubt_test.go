package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// answersUntilEnd returns the statuses of all answers until the gateway closes the connection.
func (c *rawConn) answersUntilEnd() (statuses []int) {
	c.t.Helper()
	for {
		res, err := http.ReadResponse(c.br, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if statuses = append(statuses, res.StatusCode); res.Close {
			_, _ = io.Copy(io.Discard, c.br)
			return statuses
		}
	}
}

// TestTransferEncodingInHTTP10: RFC 9112, section 6.1, takes the framing of such a request for
// faulty. What somebody in front of the gateway takes for its body is no request, nor is the
// request served without it.
func TestTransferEncodingInHTTP10(t *testing.T) {
	const body = "GET /smuggled HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for name, head := range map[string]string{
		"chunked":              "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
		"behind another":       "GET / HTTP/1.1\r\nHost: h\r\n\r\nPOST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
		"with a length":        "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\ntransfer-encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"another coding":       "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: x\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"of another's server":  "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
		"an honest one":        "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
		"an honest one's body": "POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 24\r\n\r\n\r\nTransfer-Encoding: a\r\n",
	} {
		testTransferEncodingInHTTP10(t, name, head, body, false)
		if name != "of another's server" {
			testTransferEncodingInHTTP10(t, name+", TLS", head, body, true)
		}
	}
}

func testTransferEncodingInHTTP10(t *testing.T, name, head, body string, secure bool) {
	t.Run(name, func(t *testing.T) {
		var seen, smuggled atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if seen.Add(1); r.URL.Path == "/smuggled" {
				smuggled.Add(1)
			}
		}))
		want, wantSeen := []int{400}, int64(0)
		switch {
		case strings.HasPrefix(name, "behind another"):
			want, wantSeen = []int{200, 400}, 1
		case name == "of another's server": // whose net/http says nothing of it
			s := httptest.NewServer(g.handler)
			defer s.Close()
			g.addr = s.Listener.Addr().String()
			fallthrough
		case strings.HasPrefix(name, "an honest"):
			want, wantSeen = []int{200}, 1
		}
		dial := g.dial
		if secure {
			g.serveTLS(downstream.Config{})
			dial = func() *rawConn { return g.dialTLS("http/1.1") }
		}
		c := dial()
		if before, then, ok := strings.Cut(head, "\r\n\r\nPOST"); ok {
			c.send(before + "\r\n\r\n")
			if res := c.response(); res.StatusCode != want[0] {
				t.Fatal(res.Status)
			}
			want, head = want[1:], "POST"+then
		}
		c.send(head + body)
		got := c.answersUntilEnd()
		if len(got) != 1 || got[0] != want[0] || seen.Load() != wantSeen || smuggled.Load() != 0 {
			t.Errorf("got %v, want %v; the upstream saw %d requests, %d of them smuggled", got, want, seen.Load(), smuggled.Load())
		}
	})
}

// TestHTTP10BehindAnother: the same goes for one that has come with the request before it, or behind
// empty lines.
func TestHTTP10BehindAnother(t *testing.T) {
	const coded = "POST /b HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
	const get, post = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
	for name, sent := range map[string][2]string{
		"at once":                {get + coded, ""},
		"with the end of a body": {post + "hello" + coded, ""},
		"behind empty lines":     {post + "hello", "\r\n\r\n" + coded},
		"partly":                 {get + coded[:50], coded[50:]},
		"without a coding":       {get, "GET /b HTTP/1.0\r\nHost: h\r\n\r\n"},
	} {
		var seen atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil && r.URL.Path == "/b" {
				seen.Add(1)
			}
		}))
		c := g.dial()
		c.send(sent[0])
		if res := c.response(); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		c.send(sent[1])
		want, wantSeen := 400, int64(0)
		if name == "without a coding" {
			want, wantSeen = 200, 1
		}
		if got := c.answersUntilEnd(); !slices.Equal(got, []int{want}) || seen.Load() != wantSeen {
			t.Errorf("%s: got %v; the upstream saw %d", name, got, seen.Load())
		}
	}
}

// TestDoubtCloses: after a request that may be read in another way, what follows on its
// connection is nobody's request.
func TestDoubtCloses(t *testing.T) {
	for _, line := range []string{
		"GET /a/../b HTTP/1.1\r\nHost: h",
		"GET /a/%2e%2e/b HTTP/1.1\r\nHost: h",
		"GET / HTTP/1.1\r\nHost: h:80:80",
		"CONNECT other:443 HTTP/1.1\r\nHost: other:443",
		"GET * HTTP/1.1\r\nHost: h",
		"GET mailto:a HTTP/1.1\r\nHost: h",
		"GET / HTTP/1.1\r\nHost: h\r\n" + strings.TrimSuffix(strings.Repeat("a: b\r\n", maxFields+1), "\r\n"),
	} {
		var seen atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
		c := g.dial()
		c.send(line + "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if got := c.answersUntilEnd(); len(got) != 1 || got[0] < 400 || seen.Load() != 0 {
			t.Errorf("%.60q: got %v, the upstream saw %d requests", line, got, seen.Load())
		}
	}
}

// TestHTTP2Consistent: a request over HTTP/2 whose length or host can be read in two ways is
// malformed (RFC 9113, sections 8.1.1 and 8.3.1), and no upstream's.
func TestHTTP2Consistent(t *testing.T) {
	type field = [2]string
	usual := []field{{":method", "POST"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}}
	nobody := slices.Delete(slices.Clone(usual), 2, 3)
	for _, c := range []struct {
		name   string
		fields []field
		body   string
		ok     bool
	}{
		{"honest", append(usual, field{"content-length", "5"}), "hello", true},
		{"honest, of unknown length", usual, "hello", true},
		{"honest, without a body", append(usual, field{"content-length", "0"}), "", true},
		{"a host in place of an authority", append(nobody, field{"host", "h"}), "", true},
		{"the same host", append(usual, field{"host", "H"}), "", true},
		{"a length with a sign", append(usual, field{"content-length", "+5"}), "hello", false},
		{"a list of lengths", append(usual, field{"content-length", "5, 5"}), "hello", false},
		{"a length of nothing", append(usual, field{"content-length", ""}), "hello", false},
		{"a length in hex", append(usual, field{"content-length", "0x5"}), "hello", false},
		{"a length that overflows", append(usual, field{"content-length", "18446744073709551621"}), "hello", false},
		{"two lengths", append(usual, field{"content-length", "5"}, field{"content-length", "0"}), "hello", false},
		{"two lengths, the same", append(usual, field{"content-length", "5"}, field{"content-length", "5"}), "hello", false},
		{"a length and no body", append(usual, field{"content-length", "5"}), "", false},
		{"a length with a sign and no body", append(usual, field{"content-length", "+0"}), "", false},
		{"another host", append(usual, field{"host", "other"}), "", false},
		{"another port", append(usual, field{"host", "h:81"}), "", false},
		{"an empty host beside", append(usual, field{"host", ""}), "", false},
		{"two hosts", append(nobody, field{"host", "h"}, field{"host", "other"}), "", false},
		{"two hosts, the same", append(nobody, field{"host", "h"}, field{"host", "h"}), "", false},
		{"no host", nobody, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen atomic.Int64
			g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
			conn := g.dial()
			conn.send(string(frames(t, func(f *http2.Framer) {
				var block bytes.Buffer
				enc := hpack.NewEncoder(&block)
				for _, field := range c.fields {
					_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: c.body == ""})
				if c.body != "" && c.ok { // else it would come too late, or net/http find it too long
					_ = f.WriteData(1, true, []byte(c.body))
				}
			})))
			status := conn.outcomeOfStream()
			want, wantSeen := "400", int64(0)
			if c.ok {
				want, wantSeen = "200", 1
			}
			if status != want || seen.Load() != wantSeen {
				t.Errorf("got %s; the upstream saw %d requests", status, seen.Load())
			}
		})
	}
}

// TestHTTP2LengthIsTrue: no upstream gets the whole of a request whose body goes on behind the
// length that it says, or ends in a malformed trailer.
func TestHTTP2LengthIsTrue(t *testing.T) {
	for name, then := range map[string]func(f *http2.Framer){
		"more": func(f *http2.Framer) { _ = f.WriteData(1, true, []byte("xyz")) },
		"a malformed trailer": func(f *http2.Framer) {
			var block bytes.Buffer
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":path", Value: "/smuggled"})
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		},
		"a reset":         func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeCancel) },
		"the end, honest": func(f *http2.Framer) { _ = f.WriteData(1, true, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			begun, whole := make(chan struct{}, 1), make(chan bool, 1)
			g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				begun <- struct{}{}
				_, err := io.Copy(io.Discard, r.Body)
				whole <- err == nil
			}))
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}, {"content-length", "3"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			var wire bytes.Buffer
			conn, f := g.dial(), http2.NewFramer(&wire, nil)
			conn.send(string(frames(t, func(f *http2.Framer) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
				_ = f.WriteData(1, false, []byte("abc"))
			})))
			<-begun
			then(f)
			conn.send(wire.String())
			if got := <-whole; got != strings.Contains(name, "honest") {
				t.Errorf("the upstream got the whole request: %v", got)
			}
		})
	}
}

// outcomeOfStream returns the status of the next answer over HTTP/2, or with which code its
// stream or the connection ends.
func (c *rawConn) outcomeOfStream() string {
	c.t.Helper()
	f := http2.NewFramer(io.Discard, c.br)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		case *http2.GoAwayFrame:
			return "connection: " + frame.ErrCode.String()
		}
	}
}

// TestEmptyHost: a request must say for which host it is (RFC 9110, section 4.2.1). One of HTTP/1.0
// may have no Host, but no empty one.
func TestEmptyHost(t *testing.T) {
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost:\r\n\r\n":         400,
		"GET / HTTP/1.1\r\nHost: \t\r\n\r\n":      400,
		"GET http:///a HTTP/1.1\r\nHost:\r\n\r\n": 400,
		"GET / HTTP/1.0\r\nHost:\r\n\r\n":         400,
		"GET / HTTP/1.0\r\n\r\n":                  200,
	} {
		var seen atomic.Int64
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
		c := g.dial()
		c.send(request)
		if got := c.response().StatusCode; got != want || (seen.Load() == 1) != (want == 200) {
			t.Errorf("%q: got %d; the upstream saw %d requests", request, got, seen.Load())
		}
	}
}

// TestOptionsOfTheServer: "OPTIONS *" is a request like others to those who may not come, to
// https_only, to a gateway that drains, and in the log. The gateway answers it itself.
func TestOptionsOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Config)
		status   int
		location string
		closes   bool
	}{
		"served":           {func(*Config) {}, 200, "", false},
		"denied":           {func(c *Config) { c.Edge.Access.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, 403, "", false},
		"https only":       {func(c *Config) { c.Edge.HTTPSPort = 443 }, 308, "https://h", false},
		"draining":         {func(c *Config) { c.Draining = func() bool { return true } }, 200, "", true},
		"of another route": {func(c *Config) { c.Routes[0].Match.Host = "other" }, 200, "", false},
	} {
		for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(name+", "+over, func(t *testing.T) {
				var log bytes.Buffer
				var seen atomic.Int64
				g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }), func(cfg *Config) {
					cfg.AccessLog, cfg.AccessWriter = AccessJSON, &log
					c.change(cfg)
				})
				tr := &http.Transport{Protocols: new(http.Protocols)}
				tr.Protocols.SetHTTP1(over == "HTTP/1.1")
				tr.Protocols.SetUnencryptedHTTP2(over == "HTTP/2")
				g.client.Transport = tr
				defer tr.CloseIdleConnections()
				req := g.request("OPTIONS", "/")
				req.Host, req.URL.Path = "h", "*"
				res := g.do(req)
				_ = res.Body.Close()
				if res.StatusCode != c.status || res.Header.Get("Location") != c.location || res.ProtoMajor == 1 && res.Close != c.closes {
					t.Errorf("got %s, Location %q, closes %v", res.Status, res.Header.Get("Location"), res.Close)
				}
				if allow := res.Header.Get("Allow"); c.status == 200 && allow != ownMethods {
					t.Errorf("Allow: %s", allow)
				}
				_ = g.server.Close()
				if want := fmt.Sprintf(`"path":"*","proto":"%s","pool":"","outcome":"none","status":%d`, res.Proto, c.status); !strings.Contains(log.String(), want) || seen.Load() != 0 {
					t.Errorf("the log has %q; the upstream saw %d requests", log.String(), seen.Load())
				}
			})
		}
	}
}

// TestMethodInOtherCase: methods differ by their case (RFC 9110, section 9.1), but some upstreams
// take "put" for PUT. It must not come to them by another route than PUT does.
func TestMethodInOtherCase(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for method, want := range map[string]int{
			"put": 400, "Put": 400, "pUT": 400, "get": 400, "connect": 400, "trace": 400, "propfind": 400, "m-search": 400,
			"PUT": 503, "PROPFIND": 200, "GET": 200, "M-SEARCH": 200,
		} {
			for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
				var seen atomic.Int64
				g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }), func(c *Config) {
					c.Routes = []Route{{Pool: "p", Match: Match{Methods: []string{"PUT"}}}, {Upstreams: c.Pools[0].Upstreams}}
				})
				g.sem.err = &admission.Refusal{Reason: admission.QueueFull}
				conn, got := g.dial(), ""
				if over == "HTTP/1.1" {
					conn.send(method + " / HTTP/1.1\r\nHost: h\r\n\r\n")
					got = strconv.Itoa(conn.response().StatusCode)
				} else {
					conn.send(string(frames(t, func(f *http2.Framer) {
						_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, method, "/"), EndHeaders: true, EndStream: true})
					})))
					got = conn.outcomeOfStream()
				}
				if got != strconv.Itoa(want) || (seen.Load() == 1) != (want == 200) {
					t.Errorf("%s over %s: got %s, the upstream saw %d requests", method, over, got, seen.Load())
				}
			}
		}
		if _, err := New(Config{Admitter: newSemaphore(t, 1), Pools: []Pool{{Name: "p"}}, Routes: []Route{{Pool: "p", Match: Match{Methods: []string{"get"}}}}}); err == nil || !strings.Contains(err.Error(), "capitals") {
			t.Errorf("a route for get: %v", err)
		}
	})
}
