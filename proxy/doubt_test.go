package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
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
		t.Run(name, func(t *testing.T) {
			var seen, smuggled atomic.Int64
			g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if seen.Add(1); r.URL.Path == "/smuggled" {
					smuggled.Add(1)
				}
			}))
			want, wantSeen := []int{400}, int64(0)
			switch {
			case name == "behind another":
				want, wantSeen = []int{200, 400}, 1
			case name == "of another's server": // whose net/http says nothing of it
				s := httptest.NewServer(g.handler)
				defer s.Close()
				g.addr = s.Listener.Addr().String()
				fallthrough
			case strings.HasPrefix(name, "an honest"):
				want, wantSeen = []int{200}, 1
			}
			c := g.dial()
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
