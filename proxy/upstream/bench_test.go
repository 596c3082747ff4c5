package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/http1/adapt"
)

const benchAnswer = "HTTP/1.1 200 OK\r\nDate: Tue, 03 Nov 2026 03:05:06 GMT\r\nServer: bench\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Content-Length: 1024\r\nEtag: \"0123456789\"\r\nCache-Control: no-store\r\n\r\n"

// cannedConn answers each write with the same bytes, without a network.
type cannedConn struct {
	net.Conn // nil
	answer   string
	left     string
}

func (c *cannedConn) Write(p []byte) (int, error) {
	c.left = c.answer
	return len(p), nil
}

func (c *cannedConn) Read(p []byte) (int, error) {
	if c.left == "" {
		return 0, errors.New("nothing was asked")
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (*cannedConn) SetReadDeadline(time.Time) error { return nil }
func (*cannedConn) LocalAddr() net.Addr             { return &net.TCPAddr{} }
func (*cannedConn) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (*cannedConn) Close() error                    { return nil }

// benchContext is a Context as an exchange of package proxy has it.
type benchContext struct{ context.Context }

func (benchContext) Attach(io.Closer) {}
func (benchContext) Detach() bool     { return true }
func (benchContext) Cause() error     { return nil }

func benchRequest(b *testing.B) *http.Request {
	req, err := http.NewRequestWithContext(benchContext{context.Background()}, http.MethodGet, "http://h/x?y=z", nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"Accept", "Accept-Encoding", "Forwarded", "User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		req.Header.Set(name, "some value of it")
	}
	return req
}

func benchmarkGet(b *testing.B, c *Client) {
	in, caller, buf := benchRequest(b), new(plain), make([]byte, 32<<10)
	req := &Request{Request: *in, Fields: adapt.Fields(in.Header)}
	b.ReportAllocs()
	for b.Loop() {
		res, err := c.Do(req, caller)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = res.Body.Read(buf)
		}
		_ = res.Body.Close()
	}
}

// BenchmarkGet is what a plain GET costs over a kept connection: without a network, and over
// loopback, where the server's part counts, too.
func BenchmarkGet(b *testing.B) {
	answer := benchAnswer + strings.Repeat("x", 1024)
	b.Run("alone", func(b *testing.B) {
		c := newClient(b, "h:80")
		c.cfg.Dial = func(context.Context) (net.Conn, error) { return &cannedConn{answer: answer}, nil }
		benchmarkGet(b, c)
	})
	b.Run("loopback", func(b *testing.B) {
		s := serve(b, func(c net.Conn, br *bufio.Reader) {
			_ = c.SetDeadline(time.Time{})
			for {
				line, err := br.ReadSlice('\n')
				if err != nil {
					return
				}
				if len(line) == 2 {
					_, _ = io.WriteString(c, answer)
				}
			}
		})
		benchmarkGet(b, newClient(b, s.addr))
	})
}
