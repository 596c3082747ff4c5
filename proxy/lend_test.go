package proxy

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// TestAnothersFault: a request that only reads is sent once more when its
// connection is closed in the middle of the answer's header, as it is for a
// request before; one that may change something is not.
func TestAnothersFault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answers := make(chan string, 4)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			req := make([]byte, 4096)
			_, _ = conn.Read(req)
			_, _ = io.WriteString(conn, <-answers)
			_ = conn.Close()
		}
	}()
	const (
		broken = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
		whole  = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	)
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) { c.Pools[0].Upstreams[0] = mustURL(t, "http://"+l.Addr().String()) })
	for _, tt := range []struct {
		method  string
		answers []string
		want    int
	}{
		{"GET", []string{broken, whole}, 200},
		{"GET", []string{broken, broken}, 502},
		{"DELETE", []string{broken}, 502},
	} {
		for _, a := range tt.answers {
			answers <- a
		}
		res := g.do(g.request(tt.method, "/"))
		_ = res.Body.Close()
		if res.StatusCode != tt.want || len(answers) > 0 {
			t.Errorf("%s, upstream %q: %s, %d answers left", tt.method, tt.answers, res.Status, len(answers))
		}
		g.records.next(t)
	}
}
