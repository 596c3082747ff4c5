package upstream

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/proxy/http1"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // what net/http says of servers that are wrong on purpose
	goleak.VerifyTestMain(m)
}

const patience = 10 * time.Second

// plain is a Caller that asks nothing and keeps the status of what it is told.
type plain struct {
	check  error
	checks int
	conns  int // the request was written to
	early  []int
	stop   func()
	sends  bool
}

func (p *plain) Check() error { p.checks++; return p.check }

func (p *plain) Informational(status int, _ http1.Fields) error {
	p.early = append(p.early, status)
	return nil
}

func (p *plain) Connected(net.Conn, bool) { p.conns++ }

func (p *plain) Sends() bool { return p.sends }

func (p *plain) StopUpload() bool {
	if p.stop != nil {
		p.stop()
	}
	return p.stop != nil
}

// server is a raw one: each connection is served by what it is given.
type server struct {
	addr  string
	conns atomic.Int64
}

func serve(t testing.TB, each func(c net.Conn, br *bufio.Reader)) *server {
	t.Helper()
	l := memnet.Listen(t)
	s := &server{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				each(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return s
}

// answers serves each request of a connection with text; it closes after it if the
// text says so.
func answers(text string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, br *bufio.Reader) {
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if _, err := io.WriteString(c, text); err != nil || strings.Contains(text, "Connection: close") {
				return
			}
		}
	}
}

const short = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func newClient(t testing.TB, addr string, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Scheme: "http", Address: addr, DialTimeout: patience, ResponseHeaderTimeout: patience}
	if n := memnet.Of(t); n != nil {
		cfg.Dial = func(ctx context.Context) (net.Conn, error) { return n.DialContext(ctx, "tcp", addr) }
	}
	for _, f := range change {
		f(&cfg)
	}
	c := New(cfg)
	t.Cleanup(func() {
		c.CloseIdle()
		if n := c.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
	return c
}

func request(t testing.TB, method string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://h/x", body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// get makes a request and reads the answer to its end.
func get(t testing.TB, c *Client, req *http.Request) (string, error) {
	t.Helper()
	return getFor(t, c, req, new(plain))
}

// getFor does so for a caller.
func getFor(t testing.TB, c *Client, req *http.Request, caller *plain) (string, error) {
	t.Helper()
	caller.stop = func() {}
	res, err := c.RoundTrip(req, caller)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}
