package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestKept: a connection is used again when the answer was read to its end and
// nothing follows it, and only then.
func TestKept(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		method string
		kept   bool
	}{
		"length":        {short, "GET", true},
		"chunks":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "GET", true},
		"none":          {"HTTP/1.1 204 No Content\r\n\r\n", "GET", true},
		"head":          {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "HEAD", true},
		"not modified":  {"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", "GET", true},
		"upload":        {short, "POST", true},
		"too much":      {short + "x", "GET", false},
		"head and body": {short, "HEAD", false},
		"timed out":     {"HTTP/1.1 408 Request Timeout\r\nContent-Length: 2\r\n\r\nok", "GET", false},
		"close":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", "GET", false},
		"HTTP/1.0":      {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "GET", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, answers(tt.answer))
			c := newClient(t, s.addr)
			for range 3 {
				var body io.Reader
				if tt.method == "POST" {
					body = strings.NewReader("hello")
				}
				if _, err := get(t, c, request(t, tt.method, body)); err != nil {
					t.Fatal(err)
				}
			}
			if want := map[bool]int64{true: 1, false: 3}[tt.kept]; s.conns.Load() != want {
				t.Errorf("%d connections, want %d", s.conns.Load(), want)
			}
		})
	}
}

// TestAbandoned: an answer that is closed early ends its connection before Close
// returns, whether or not all that has come of it was read.
func TestAbandoned(t *testing.T) {
	for _, read := range []int64{0, 4} {
		testAbandoned(t, read)
	}
}

func testAbandoned(t *testing.T, read int64) {
	gone := make(chan error, 1)
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		_, _ = http.ReadRequest(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
		_, err := br.ReadByte()
		gone <- err
	})
	c := newClient(t, s.addr)
	res, err := c.RoundTrip(request(t, "GET", nil), &plain{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, res.Body, read); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if n := c.Open(); n != 0 {
		t.Fatalf("%d connections are open", n)
	}
	if err := <-gone; err == nil {
		t.Error("the server sees more")
	}
}

// TestBrokenOffUpload: a server that reads slowly is not sent the rest of a request that
// has been broken off: its connection is reset.
func TestBrokenOffUpload(t *testing.T) {
	failed := errors.New("the client is gone")
	for _, c := range []struct {
		name   string
		answer string // that the server begins with
		fails  error
	}{
		{"its context ends", "", context.Canceled},
		{"its body fails", "", failed},
		{"its answer is not wanted", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			full, broken := make(chan struct{}), make(chan struct{})
			end := make(chan error, 1)
			s := serve(t, func(conn net.Conn, br *bufio.Reader) {
				req, _ := http.ReadRequest(br)
				<-full
				if c.answer != "" { // a write after the reset would take its error
					_, _ = io.WriteString(conn, c.answer)
				}
				<-broken
				_, err := io.Copy(io.Discard, req.Body)
				end <- err
			})
			client := newClient(t, s.addr)
			ctx, cancel := context.WithCancel(t.Context())
			// Its body is more than the server takes, and less than fits the connection.
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), readerFunc(func([]byte) (int, error) {
				close(full)
				if errors.Is(c.fails, failed) {
					return 0, failed
				}
				if c.fails != nil {
					cancel()
				}
				<-broken
				return 0, failed
			}))
			caller := &plain{}
			caller.stop = sync.OnceFunc(func() { close(broken) })
			req := request(t, "POST", body).WithContext(ctx)
			req.ContentLength = 32 << 20
			res, err := client.RoundTrip(req, caller)
			if !errors.Is(err, c.fails) {
				t.Errorf("failed with %v", err)
			}
			if err == nil {
				_ = res.Body.Close()
			}
			caller.stop()
			if err := <-end; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server's connection ends with %v", err)
			}
		})
	}
}

// TestGoodbyeUnread: a server that reads nothing any more keeps nobody waiting when its
// connection is closed.
func TestGoodbyeUnread(t *testing.T) {
	secure := httptest.NewTLSServer(nil) // for its certificate
	defer secure.Close()
	memnet.Test(t, func(t *testing.T) {
		s := serve(t, func(c net.Conn, _ *bufio.Reader) {
			_ = tls.Server(c, secure.TLS).Handshake()
			_ = c.(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(0)
			time.Sleep(patience)
		})
		c := newClient(t, s.addr, insecure)
		tcp, err := c.cfg.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		raw := newConn(tcp, c.cfg.Standing, c.endLapsed(), c.forget)
		stream := tls.Client(raw, c.cfg.TLS)
		if err := stream.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		newHTTP1(&c.cfg, raw, stream, c.keep).hangUp()
		if took := time.Since(began); took != goodbyeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// TestStale: a kept connection that the server has closed, or on which it has said
// more, is noticed before it is used: also by requests that could not be sent again.
func TestStale(t *testing.T) {
	secure := httptest.NewTLSServer(nil) // for its certificate
	defer secure.Close()
	for _, tt := range []struct{ name, scheme, method, last string }{
		{"closed", "http", "POST", ""},
		{"closed", "https", "POST", ""},
		{"said more", "http", "POST", evil},
		{"said more", "http", "GET", evil},
		{"said more", "https", "GET", evil},
	} {
		t.Run(tt.name+" "+tt.scheme+" "+tt.method, func(t *testing.T) {
			next := make(chan struct{})
			ended := make(chan struct{}, 1)
			s := serve(t, func(c net.Conn, br *bufio.Reader) {
				if tt.scheme == "https" {
					c = tls.Server(c, secure.TLS)
					br = bufio.NewReader(c)
				}
				if req, err := http.ReadRequest(br); err == nil {
					_, _ = io.Copy(io.Discard, req.Body) // an answer before its end would end the connection
				}
				_, _ = io.WriteString(c, short)
				<-next
				_, _ = io.WriteString(c, tt.last)
				if tt.last == "" {
					_ = c.Close()
				}
				ended <- struct{}{}
				_, _ = br.ReadByte()
			})
			c := newClient(t, s.addr, func(cfg *Config) {
				cfg.Scheme = tt.scheme
				cfg.TLS = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				cfg.TLS.NextProtos = []string{"http/1.1"}
			})
			for i := range 2 {
				var body io.Reader
				if tt.method == "POST" {
					body = strings.NewReader("x")
				}
				if b, err := get(t, c, request(t, tt.method, body)); err != nil || b != "ok" {
					t.Fatalf("request %d: %q, %v", i, b, err)
				}
				next <- struct{}{}
				<-ended
				awaitStale(t, c)
			}
			if s.conns.Load() != 2 {
				t.Errorf("%d connections", s.conns.Load())
			}
		})
	}
}

// awaitStale waits until what the server did has arrived here.
func awaitStale(t *testing.T, c *Client) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		stale := len(c.idle) == 1 && c.idle[0].isStale()
		c.mu.Unlock()
		if stale {
			return
		}
	}
	t.Fatal("the connection is not stale")
}

// TestResend: over a kept connection that dies unanswered, a request is sent once
// more if RFC 9110, section 9.2.2, allows it; over a new one never, nor when a byte
// of an answer has come.
func TestResend(t *testing.T) {
	for _, tt := range []struct {
		method, body, last string
		first              bool // the connection is new
		seen               int64
		ok                 bool
	}{
		{"GET", "", "", false, 2, true},
		{"HEAD", "", "", false, 2, true},
		{"OPTIONS", "", "", false, 2, true},
		{"TRACE", "", "", false, 2, true},
		{"GET", "body", "", false, 1, false},
		{"POST", "", "", false, 1, false},
		{"PUT", "", "", false, 1, false},
		{"DELETE", "", "", false, 1, false},
		{"GET", "", "H", false, 1, false},
		{"GET", "", "HTTP/1.1 200 OK\r\nContent-Le", false, 1, false},
		{"GET", "", "HTTP/1.1 200 OK\r\n", false, 1, false},
		{"GET", "", "", true, 1, false},
	} {
		var seen atomic.Int64
		var conns atomic.Int64
		s := serve(t, func(c net.Conn, br *bufio.Reader) {
			n := conns.Add(1)
			if !tt.first && n == 1 {
				_, _ = http.ReadRequest(br)
				_, _ = io.WriteString(c, short)
			}
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			seen.Add(1)
			if n == 1 {
				_, _ = io.WriteString(c, tt.last)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		})
		c := newClient(t, s.addr)
		if !tt.first {
			if _, err := get(t, c, request(t, "GET", nil)); err != nil {
				t.Fatal(err)
			}
		}
		var body io.Reader
		if tt.body != "" {
			body = strings.NewReader(tt.body)
		}
		caller := new(plain)
		_, err := getFor(t, c, request(t, tt.method, body), caller)
		if (err == nil) != tt.ok || seen.Load() != tt.seen || int64(caller.conns) != tt.seen {
			t.Errorf("%+v: seen %d times, sent %d times, %v", tt, seen.Load(), caller.conns, err)
		}
	}
}

// TestEarlyAnswer: an answer ends the exchange while the body still comes; what
// reads the body is stopped before Close returns.
func TestEarlyAnswer(t *testing.T) {
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		_, _ = http.ReadRequest(br)
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, br)
	})
	c := newClient(t, s.addr)
	body, w := io.Pipe()
	stopped := false
	res, err := c.RoundTrip(request(t, "POST", body), &plain{stop: func() { stopped = true; _ = w.CloseWithError(io.ErrClosedPipe) }})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 413 || !stopped || c.Open() != 0 {
		t.Errorf("got %s, stopped %v, %d connections", res.Status, stopped, c.Open())
	}
}

// TestExpect: a body is sent when the server asks for it, or after a while; it is
// not sent after a final answer.
func TestExpect(t *testing.T) {
	for name, tt := range map[string]struct {
		say  string // before the body
		want string
		body bool
		wait time.Duration
	}{
		"asked":     {"HTTP/1.1 100 Continue\r\n\r\n", "ok", true, 0},
		"not asked": {"", "ok", true, continueTimeout},
		"refused":   {"HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno", "no", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			memnet.Test(t, func(t *testing.T) {
				s := serve(t, func(c net.Conn, br *bufio.Reader) {
					req, _ := http.ReadRequest(br)
					_, _ = io.WriteString(c, tt.say)
					b, err := io.ReadAll(req.Body)
					if (string(b) == "hello") != tt.body {
						t.Errorf("got %q, %v", b, err)
					}
					_, _ = io.WriteString(c, short)
				})
				c, began := newClient(t, s.addr), time.Now()
				got, err := get(t, c, request(t, "POST", strings.NewReader("hello"), "Expect", "100-continue"))
				if took := time.Since(began); err != nil || got != tt.want || took != tt.wait {
					t.Errorf("got %q, %v after %v", got, err, took)
				}
			})
		})
	}
}

// TestBodyFails: a body that cannot be read, or is not as long as announced, is
// never taken for whole.
func TestBodyFails(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		body   io.Reader
		length int64
	}{
		"breaks, chunks": {io.MultiReader(strings.NewReader("hello"), errReader{broken}), -1},
		"breaks, length": {io.MultiReader(strings.NewReader("hello"), errReader{broken}), 10},
		"too short":      {strings.NewReader("hello"), 10},
		"too long":       {strings.NewReader("hello"), 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(_ net.Conn, br *bufio.Reader) {
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				if b, err := io.ReadAll(req.Body); err == nil {
					t.Errorf("the server takes %q for whole", b)
				}
			})
			c := newClient(t, s.addr)
			req := request(t, "POST", io.NopCloser(tt.body))
			req.ContentLength = tt.length
			_, err := get(t, c, req)
			var invalid *InvalidRequestError
			if !errors.Is(err, broken) && !errors.As(err, &invalid) {
				t.Errorf("failed with %v", err)
			}
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestHeaderTooLarge: what a server can make us store is bounded, before and after
// informational answers.
func TestHeaderTooLarge(t *testing.T) {
	large := "X: " + strings.Repeat("x", 13<<10) + "\r\n\r\n"
	for _, raw := range []string{"HTTP/1.1 200 OK\r\n" + large, "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n" + large, "HTTP/1.1 103 Early\r\n" + large} {
		if o := ours(t, "GET", raw); !o.failed {
			t.Errorf("%.30q: %d", raw, o.status)
		}
	}
}

// TestSwitchBeforeBody: a connection goes on in another protocol when the request is whole, and
// not before; never if the request is given up.
func TestSwitchBeforeBody(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		s := serve(t, func(c net.Conn, br *bufio.Reader) {
			if _, err := http.ReadRequest(br); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 101 S\r\n\r\n")
				_, _ = io.Copy(io.Discard, br)
			}
		})
		c := newClient(t, s.addr)
		const late = 50 * time.Millisecond
		for _, whole := range []bool{true, false} {
			body, sender := io.Pipe()
			req := request(t, "POST", body)
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			req.ContentLength = 2
			began := time.Now()
			time.AfterFunc(late, func() {
				if !whole {
					cancel()
					return
				}
				_, _ = sender.Write([]byte("{}"))
				_ = sender.Close()
			})
			res, err := c.RoundTrip(req.WithContext(ctx), &plain{stop: func() { _ = body.Close() }})
			if took := time.Since(began); whole != (err == nil) || took != late {
				t.Errorf("body sent %v: %v after %v", whole, err, took)
			}
			if err == nil {
				_ = res.Body.Close()
			}
		}
	})
}

// TestSwitchThenGone: a server that agrees before the request is whole, and then ends or resets
// the connection, does not have the request wait for its body.
func TestSwitchThenGone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see tcpstate_other.go")
	}
	for name, resets := range map[string]bool{"ends": false, "resets": true} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c net.Conn, br *bufio.Reader) {
				if _, err := http.ReadRequest(br); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 101 S\r\n\r\nearly")
				}
				if resets {
					tcpstate.AwaitDelivered(c, patience, time.Time{})
					tcpstate.ResetOnClose(c, true)
				}
			})
			body, _ := io.Pipe()
			req := request(t, "POST", body)
			req.ContentLength = 2
			_, err := newClient(t, s.addr).RoundTrip(req, &plain{stop: func() { _ = body.Close() }})
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestAskedAndAnswered: a body that the server has asked for is sent, also if the answer comes
// right behind, as an upgrade may.
func TestAskedAndAnswered(t *testing.T) {
	req := request(t, "POST", strings.NewReader("{}"), "Expect", "100-continue")
	for range 100 {
		u := newUpload(new(http1Conn), &Request{Request: *req, Fields: adapt.Fields(req.Header)}, new(plain))
		u.begin()
		u.answered()
		if !u.mayBegin() {
			t.Fatal("the body is not sent")
		}
	}
}
