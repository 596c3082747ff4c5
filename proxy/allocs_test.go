package proxy

import (
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/kgate/kgate/proxy/downstream"
)

const (
	plainGet    = "GET /x HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
	plainAnswer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n"
)

// plainExchange returns a function that sends a plain GET through the Handler, over kept
// connections of loopback. Neither it nor the upstream allocates: what is counted is ours.
func plainExchange(tb testing.TB) func() {
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = up.Close() })
	go func() {
		answer := []byte(plainAnswer + strings.Repeat("x", 1024))
		for {
			c, err := up.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for b, n := make([]byte, 4096), 0; ; {
					m, err := c.Read(b[n:])
					if err != nil {
						return
					}
					if n += m; n >= 4 && string(b[n-4:n]) == "\r\n\r\n" {
						_, _ = c.Write(answer)
						n = 0
					}
				}
			}()
		}
	}()
	handler := openHandler(tb, &url.URL{Scheme: "http", Host: up.Addr().String()})
	tb.Cleanup(handler.Close)
	s, err := downstream.NewServer(downstream.Config{Handler: handler})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	tb.Cleanup(func() { _ = s.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	ask, answer, body := []byte(plainGet), make([]byte, 4096), strings.Repeat("x", 1024)
	return func() {
		if _, err := c.Write(ask); err != nil {
			tb.Fatal(err)
		}
		for n := 0; ; {
			m, err := c.Read(answer[n:])
			if err != nil {
				tb.Fatal(err)
			}
			if n += m; n > len(body) && string(answer[n-len(body):n]) == body {
				return
			}
			if n == len(answer) {
				tb.Fatal(io.ErrShortBuffer)
			}
		}
	}
}

// TestAllocationsOfAGet holds the whole way of a plain GET, from the client's connection to the
// upstream's and back, to the number of allocations that it has.
func TestAllocationsOfAGet(t *testing.T) {
	const most = 5
	get := plainExchange(t)
	least := math.Inf(1) // what is used again may not be there
	for range 200 {
		least = min(least, testing.AllocsPerRun(1, get))
	}
	if least > most {
		t.Errorf("a GET takes %v allocations, at most %d are allowed", least, most)
	}
}

// BenchmarkGet is a plain GET, one after the other, over kept connections of loopback.
func BenchmarkGet(b *testing.B) {
	get := plainExchange(b)
	b.ReportAllocs()
	for b.Loop() {
		get()
	}
}
