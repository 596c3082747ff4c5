package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
)

// paced is a Caller that reads no faster than a rate.
type paced struct {
	plain
	rate int64
}

func (p *paced) Rate() int64 { return p.rate }

// TestRateLifted: a connection whose server was held back is not kept once its rate is lifted, since
// the system lets its buffer grow no more.
func TestRateLifted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("servers are held back on Linux only")
	}
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	client := newClient(t, s.addr)
	for i, step := range []struct{ rate, conns int64 }{{0, 1}, {1 << 20, 1}, {1 << 20, 1}, {0, 1}, {0, 2}, {0, 2}} {
		res, err := client.RoundTrip(request(t, http.MethodGet, nil), &paced{rate: step.rate})
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if n := s.conns.Load(); n != step.conns {
			t.Errorf("step %d: %d connections, want %d", i, n, step.conns)
		}
	}
}
