package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestUpstreamEndsBehindHead: a client hears of an upstream that has ended before the first byte
// of its answer's body, as long as nothing of the answer is sent.
func TestUpstreamEndsBehindHead(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		status int
		body   string
	}{
		"of known length":         {"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\n", 502, ""},
		"in chunks":               {"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", 502, ""},
		"bad chunks":              {"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 502, ""},
		"until the end":           {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 200, ""},
		"none":                    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, ""},
		"behind the first byte":   {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh", 200, "h"},
		"behind another's header": {"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\n", 502, ""},
	} {
		for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
			for _, resets := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, resets %v", name, over, resets), func(t *testing.T) {
					if resets && c.status == 200 {
						t.Skip("it may overtake the answer")
					}
					up := newTCPUpstream(t, func(conn socket) {
						_, _ = http.ReadRequest(bufio.NewReader(conn))
						_, _ = io.WriteString(conn, c.answer)
						tcpstate.AwaitDelivered(conn, patience, time.Time{})
						tcpstate.ResetOnClose(conn, resets)
					})
					up.url.Scheme = "http"
					g := newGateway(t, 1, nil, func(cfg *Config) { cfg.Pools[0].Upstreams = []*url.URL{up.url} })
					tr := &http.Transport{Protocols: new(http.Protocols)}
					tr.Protocols.SetHTTP1(over == "HTTP/1.1")
					tr.Protocols.SetUnencryptedHTTP2(over == "HTTP/2")
					defer tr.CloseIdleConnections()
					res, err := tr.RoundTrip(g.request("POST", "/"))
					if err != nil {
						t.Fatal(err)
					}
					body, _ := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if res.StatusCode != c.status || c.status == 200 && string(body) != c.body || c.status == 502 && res.Header.Get("X-A") != "" {
						t.Errorf("got %s %v %q", res.Status, res.Header, body)
					}
					g.sem.await(0, 0)
					if rec := g.records.next(t); rec.Status != c.status || rec.Aborted != (c.body != "") {
						t.Errorf("recorded %+v", rec)
					}
				})
			}
		}
	}
}

// TestBrokenOff: an answer that breaks off behind its first byte is not whole to any client, also not to one of
// HTTP/1.0, to which the connection's end is the answer's. If two readers may read it in two ways, the
// log says by which rule.
func TestBrokenOff(t *testing.T) {
	for name, c := range map[string]struct{ chunk, log string }{
		"ends":      {"5\r\nhel", ""},
		"malformed": {"5\r\nhello\r\nx\r\n", "chunk"},
	} {
		for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
			up := newTCPUpstream(t, func(conn socket) {
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				tcpstate.AwaitDelivered(conn, patience, time.Time{})
				_, _ = io.WriteString(conn, c.chunk)
			})
			up.url.Scheme = "http"
			lines := make(chan string, 9)
			g := newGateway(t, 1, nil, func(cfg *Config) {
				cfg.Pools[0].Upstreams = []*url.URL{up.url}
				cfg.AccessLog = AccessJSON
				cfg.AccessWriter = writerFunc(func(b []byte) (int, error) { lines <- string(b); return len(b), nil })
			})
			client := g.dial()
			client.send("GET / " + version + "\r\nHost: h\r\n\r\n")
			if got, err := io.ReadAll(client.br); err == nil && version == "HTTP/1.0" {
				t.Errorf("%s, %s: ends in order after %q", name, version, got)
			}
			if line := <-lines; !strings.Contains(line, c.log) || (c.log != "") != strings.Contains(line, `"error"`) {
				t.Errorf("%s, %s: the log says %s", name, version, line)
			}
		}
	}
}

// TestUpgradeRequired: an answer with status 426 says which protocol it wants (RFC 9110, section
// 15.5.22).
func TestUpgradeRequired(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop, Upgrade")
		w.Header().Set("X-Hop", "a")
		w.Header().Set("Upgrade", "websocket, h2c")
		status := http.StatusUpgradeRequired
		if r.URL.Path == "/else" {
			status = http.StatusOK
		}
		w.WriteHeader(status)
	}))
	for path, want := range map[string]string{"/": "Upgrade: websocket, h2c", "/else": ": "} {
		res := g.do(g.request("GET", path))
		_ = res.Body.Close()
		if got := res.Header.Get("Connection") + ": " + res.Header.Get("Upgrade"); got != want || res.Header.Get("X-Hop") != "" {
			t.Errorf("%s %s: %v", path, res.Status, res.Header)
		}
	}
}

// TestLargeTrailers: the trailer of an answer may be larger than a buffer of net/http's. That of
// a request may not: no upstream takes it for whole.
func TestLargeTrailers(t *testing.T) {
	sum := strings.Repeat("x", 12<<10)
	var whole atomic.Int64 // requests with a trailer, as the upstream has seen them
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil && len(r.Trailer.Get("X-Sum")) > 0 {
			whole.Add(1)
		}
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("X-Sum", sum)
	}))
	g.client.Transport.(*http.Transport).ReadBufferSize = 32 << 10 // the client's own bound
	res := g.do(g.request("GET", "/"))
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(body) != "hello" || res.Trailer.Get("X-Sum") != sum {
		t.Errorf("got %q and a trailer of %d bytes: %v", body, len(res.Trailer.Get("X-Sum")), err)
	}
	for size, want := range map[int]int{3 << 10: 200, 12 << 10: 400} {
		conn := g.dial()
		conn.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: " + sum[:size] + "\r\n\r\n")
		if got := conn.response().StatusCode; got != want {
			t.Errorf("a trailer of %d bytes: got %d", size, got)
		}
	}
	g.upstream.Close() // waits for what it serves
	if n := whole.Load(); n != 1 {
		t.Errorf("the upstream has seen %d whole requests", n)
	}
}
