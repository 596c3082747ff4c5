//go:build unix

package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// TestBadAnswerToUpload: a server that reads nothing of a long body and answers badly, or
// with an upgrade that the caller declines, hears that the exchange is over before
// another one may begin.
func TestBadAnswerToUpload(t *testing.T) {
	for name, say := range map[string]string{
		"no header": "nonsense\r\n\r\n",
		"half":      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
		"upgrade":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said, heard := make(chan net.Conn, 1), make(chan struct{})
			s := serve(t, func(c net.Conn, br *bufio.Reader) {
				_, _ = http.ReadRequest(br)
				time.Sleep(10 * time.Millisecond) // more than the system takes is on its way
				_, _ = io.WriteString(c, say)
				said <- c
				time.AfterFunc(200*time.Millisecond, cancel) // an upgrade waits for the rest of the request
				<-heard
			})
			defer close(heard)
			c := newClient(t, s.addr)
			res, err := c.RoundTrip(request(t, "POST", strings.NewReader(strings.Repeat("x", 32<<20))).WithContext(ctx), &plain{})
			if err == nil {
				_ = res.Body.Close()
			}
			hears(t, <-said)
		})
	}
}

// TestStreamsAborted: so does one over HTTP/2 that aborts what it reads nothing of.
func TestStreamsAborted(t *testing.T) {
	const window = 1 << 30 // more than the systems take
	for name, c := range map[string]struct {
		length int
		abort  func(c net.Conn, fr *xhttp2.Framer)
	}{
		"it ends":                  {1 << 20, func(c net.Conn, _ *xhttp2.Framer) { _ = c.(*net.TCPConn).CloseWrite() }},
		"it ends, before a write":  {32 << 20, func(c net.Conn, _ *xhttp2.Framer) { _ = c.(*net.TCPConn).CloseWrite() }},
		"it takes no more streams": {1 << 20, func(_ net.Conn, fr *xhttp2.Framer) { _ = fr.WriteGoAway(0, xhttp2.ErrCodeNo, nil) }},
		"it breaks a rule":         {1 << 20, func(_ net.Conn, fr *xhttp2.Framer) { _ = fr.WriteWindowUpdate(0, 1<<31-1) }},
	} {
		for range 3 {
			t.Run(name, func(t *testing.T) {
				said, heard := make(chan net.Conn, 1), make(chan struct{})
				s := serve(t, func(conn net.Conn, br *bufio.Reader) {
					_, _ = io.ReadFull(br, make([]byte, len(xhttp2.ClientPreface)))
					fr := xhttp2.NewFramer(conn, br)
					_ = fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: window})
					_ = fr.WriteWindowUpdate(0, window)
					for f, err := fr.ReadFrame(); err == nil && f.Header().Type != xhttp2.FrameHeaders; {
						f, err = fr.ReadFrame()
					}
					time.Sleep(20 * time.Millisecond) // what the system takes is on its way
					c.abort(conn, fr)
					said <- conn
					<-heard
				})
				defer close(heard)
				client := newClient(t, s.addr, func(c *Config) { c.Scheme = "h2c" })
				body := io.MultiReader(strings.NewReader(strings.Repeat("x", c.length)), readerFunc(func([]byte) (int, error) {
					time.Sleep(time.Millisecond)
					return 1, nil
				}))
				if res, err := client.RoundTrip(request(t, "POST", io.NopCloser(body)), &plain{stop: func() {}}); err == nil {
					_ = res.Body.Close()
				}
				hears(t, <-said)
			})
		}
	}
}

// TestLapseWithinWrite: a Write that waits for room when the standing ends sends nothing
// more, though nobody has told the connection.
func TestLapseWithinWrite(t *testing.T) {
	const length = 64 << 20 // more than the systems take
	var standing atomic.Uint64
	standing.Store(1)
	lapsed, got := make(chan struct{}), make(chan int64, 1)
	s := serve(t, func(_ net.Conn, br *bufio.Reader) {
		_, _ = br.ReadByte()
		standing.Store(2)
		close(lapsed)
		n, _ := io.Copy(io.Discard, br)
		got <- 1 + n
	})
	c := newClient(t, s.addr, func(c *Config) { c.Standing = standing.Load })
	tunnel, err := c.Tunnel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tunnel.Write(make([]byte, length))
	<-lapsed
	tunnel.Drain(time.Minute) // what has been written arrives
	tunnel.Finish()
	if n := <-got; n == length || !errors.Is(err, ErrLapsed) {
		t.Errorf("the server got %d bytes of %d: %v", n, length, err)
	}
}

// bounded is a Caller whose time to send ends before the standing.
type bounded struct {
	plain
	over atomic.Bool
}

func (b *bounded) MaySend() bool { return !b.over.Load() }

// TestSenderEndsWithinUpload: an upload that waits for room when its slot ends sends nothing
// more. Its connection ends with it.
func TestSenderEndsWithinUpload(t *testing.T) {
	const length = 64 << 20 // more than the systems take
	caller, got := new(bounded), make(chan int64, 1)
	caller.stop = func() {}
	s := serve(t, func(_ net.Conn, br *bufio.Reader) {
		_, _ = http.ReadRequest(br)
		caller.over.Store(true)
		n, _ := io.Copy(io.Discard, br)
		got <- n
	})
	c := newClient(t, s.addr)
	res, err := c.RoundTrip(request(t, "POST", io.LimitReader(endless{}, length)), caller)
	if err == nil {
		_ = res.Body.Close()
	}
	if n := <-got; n >= length || !errors.Is(err, ErrLapsed) {
		t.Errorf("the server got %d bytes of %d: %v", n, length, err)
	}
}

// endless is a body of zeros.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(p []byte) (int, error) { return len(p), nil }

// hears returns when the peer of a connection has ended both sides.
func hears(t *testing.T, c net.Conn) {
	t.Helper()
	for until := time.Now().Add(time.Second); !hungUp(t, c); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the server does not hear of it")
		}
	}
}

// hungUp reports whether the peer has ended both sides of a connection, without reading
// from it.
func hungUp(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fds := make([]unix.PollFd, 1) // POLLHUP needs not be asked for
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fds[0].Revents&unix.POLLHUP != 0
}

// endFirst is a Caller whose first connection the server ends before anything is written.
type endFirst struct {
	plain
	end func()
}

func (e *endFirst) Connected(conn net.Conn, reused bool) {
	if e.plain.Connected(conn, reused); e.conns > 1 {
		return
	}
	e.end()
	raw, _ := conn.(*net.TCPConn).SyscallConn()
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(patience/time.Millisecond))
	})
}

// TestUnseenHTTP1: a request that the server cannot have looked at goes over a new connection,
// whatever it is, and may go to another server.
func TestUnseenHTTP1(t *testing.T) {
	accepted := make(chan net.Conn, 4)
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		accepted <- c
		answers(short)(c, br)
	})
	closes := func() { _ = (<-accepted).Close() }
	resets := func() {
		c := <-accepted
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	c := newClient(t, s.addr)
	_, err := c.RoundTrip(request(t, "POST", strings.NewReader("x")), &endFirst{end: resets})
	if dial := (*DialError)(nil); !errors.As(err, &dial) {
		t.Errorf("%v", err)
	}
	for name, f := range map[string]struct {
		end  func()
		body string
	}{"reset": {resets, "x"}, "closed": {closes, ""}} {
		if _, err := get(t, c, request(t, "GET", nil)); err != nil { // whose connection is kept
			t.Fatal(err)
		}
		req := request(t, "POST", nil)
		if f.body != "" {
			req = request(t, "POST", strings.NewReader(f.body))
		}
		caller := &endFirst{end: f.end}
		res, err := c.RoundTrip(req, caller)
		if err != nil || caller.conns != 2 {
			t.Fatalf("%s: %v over %d connections", name, err, caller.conns)
		}
		_ = res.Body.Close()
		<-accepted
		c.mu.Lock()
		for raw := range c.conns {
			go raw.reset()
		}
		c.mu.Unlock()
	}
}
