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
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/memnet"
)

// TestTimes: each bound ends what it is for, and is no longer in force after.
func TestTimes(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		const silence, idle = time.Second, 2 * time.Second
		s := serve(t, func(c net.Conn, br *bufio.Reader) {
			for {
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if req.Header.Get("Silent") != "" {
					_, _ = br.ReadByte()
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
				time.Sleep(silence * 3 / 2)
				_, _ = io.WriteString(c, "k")
			}
		})
		c := newClient(t, s.addr, func(c *Config) {
			c.ResponseHeaderTimeout = silence
			c.IdleTimeout = idle
		})
		for _, body := range []string{"", "hello"} {
			var r io.Reader
			if body != "" {
				r = strings.NewReader(body)
			}
			began := time.Now()
			_, err := get(t, c, request(t, "POST", r, "Silent", "yes"))
			var timeout net.Error
			if took := time.Since(began); !errors.As(err, &timeout) || !timeout.Timeout() || took != silence {
				t.Errorf("a silent server: %v after %v", err, took)
			}
			if b, err := get(t, c, request(t, "GET", nil)); b != "ok" || err != nil {
				t.Errorf("a slow body: %q, %v", b, err)
			}
		}
		time.Sleep(idle - 1)
		conns := s.conns.Load()
		if _, err := get(t, c, request(t, "GET", nil)); err != nil || s.conns.Load() != conns {
			t.Errorf("a connection is not kept: %v", err)
		}
		for _, step := range []struct {
			wait time.Duration
			open int
		}{{idle - 1, 1}, {1, 0}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if n := c.Open(); n != step.open {
				t.Errorf("%d connections are open, want %d", n, step.open)
			}
		}
	})
}

// TestCancel: the end of the context ends a request at once, in each of its states.
func TestCancel(t *testing.T) {
	for name, answer := range map[string]string{"header": "", "body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", "tunnel": "HTTP/1.1 101 S\r\n\r\nx"} {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{})
			s := serve(t, func(c net.Conn, br *bufio.Reader) {
				_, _ = http.ReadRequest(br)
				_, _ = io.WriteString(c, answer)
				close(entered)
				_, _ = br.ReadByte()
			})
			c := newClient(t, s.addr)
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("why")
			go func() { <-entered; cancel(why) }()
			res, err := c.RoundTrip(request(t, "GET", nil).WithContext(ctx), &plain{})
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			} else if !errors.Is(err, why) {
				t.Errorf("failed with %v", err)
			}
			if err == nil || c.Open() != 0 {
				t.Errorf("%v, %d connections", err, c.Open())
			}
		})
	}
}

// TestDialError: whatever keeps a connection from being made is one, the handshake
// of TLS included.
func TestDialError(t *testing.T) {
	mute := serve(t, func(_ net.Conn, br *bufio.Reader) { _, _ = io.Copy(io.Discard, br) })
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	other.Config.ErrorLog = nil
	for name, cfg := range map[string]Config{
		"refused":           {Scheme: "http", Address: "127.0.0.1:1"},
		"says nothing":      {Scheme: "https", Address: mute.addr},
		"not trusted":       {Scheme: "https", Address: strings.TrimPrefix(other.URL, "https://"), TLS: &tls.Config{}},
		"not to be reached": {Scheme: "h2c", Address: "127.0.0.1:1"},
	} {
		cfg.DialTimeout = 200 * time.Millisecond
		c := New(cfg)
		_, err := c.RoundTrip(request(t, "POST", strings.NewReader("x")), &plain{})
		var dial *DialError
		if !errors.As(err, &dial) || c.Open() != 0 {
			t.Errorf("%s: %v, %d connections", name, err, c.Open())
		}
	}
}

// TestLapse: the end of the standing resets all connections, with what they had not
// sent yet, before EndLapsed returns. A dial that was under way gives none.
func TestLapse(t *testing.T) {
	var standing atomic.Uint64
	standing.Store(1)
	stuck, heard := make(chan struct{}), make(chan error, 1)
	s := serve(t, func(_ net.Conn, br *bufio.Reader) {
		_, _ = http.ReadRequest(br)
		<-stuck
		_, err := io.Copy(io.Discard, br)
		heard <- err
	})
	c := newClient(t, s.addr, func(c *Config) { c.Standing = standing.Load })
	failed := make(chan error, 1)
	filled := make(chan struct{}, 1<<20)
	go func() {
		body := readerFunc(func(p []byte) (int, error) { filled <- struct{}{}; return len(p), nil })
		_, err := c.RoundTrip(request(t, "POST", io.NopCloser(body)), &plain{stop: func() {}})
		failed <- err
	}()
	for quiet := false; !quiet; { // until nothing more fits
		select {
		case <-filled:
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	standing.Store(2)
	c.EndLapsed()
	if n := c.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	close(stuck)
	if err := <-heard; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request succeeded")
	}

	dial := c.cfg.Dial
	c.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		defer standing.Store(0)
		return dial(ctx)
	}
	standing.Store(3)
	for range 2 { // dialled too late, and not at all
		if _, err := get(t, c, request(t, "GET", nil)); !errors.Is(err, ErrLapsed) {
			t.Errorf("got %v", err)
		}
		if n := c.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestCheck: a caller that may not send any more sends nothing, and does not lose
// the connection for others.
func TestCheck(t *testing.T) {
	s := serve(t, answers(short))
	c := newClient(t, s.addr)
	no := errors.New("no")
	if _, err := c.RoundTrip(request(t, "GET", nil), &plain{check: no}); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if b, err := get(t, c, request(t, "GET", nil)); b != "ok" || err != nil || s.conns.Load() != 1 {
		t.Errorf("got %q, %v, %d connections", b, err, s.conns.Load())
	}
}

// TestCloseIdleInUse: a connection that is in use at CloseIdle is closed when its
// request has ended.
func TestCloseIdleInUse(t *testing.T) {
	t.Parallel()
	s := serve(t, answers(short))
	c := newClient(t, s.addr)
	res, err := c.RoundTrip(request(t, "GET", nil), &plain{})
	if err != nil {
		t.Fatal(err)
	}
	c.CloseIdle()
	if b, err := io.ReadAll(res.Body); string(b) != "ok" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	_ = res.Body.Close()
	for end := time.Now().Add(patience); c.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection is kept")
		}
	}
}
