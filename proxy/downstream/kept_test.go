package downstream

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// kept returns a connection that is idle after what it sends first, and its client.
func kept(t *testing.T, first string) (c *Conn, client net.Conn) {
	t.Helper()
	server, client := net.Pipe()
	limits := newLimiter(1, slog.New(slog.DiscardHandler))
	l := &listener{limiter: limits, headerTime: headerTime}
	c = &Conn{Conn: server, raw: server, listener: l, frames: &frameTimer{limit: l.headerTime}}
	c.entry.conn = c
	limits.enter(&c.entry, l)
	limits.serves(&c.entry)
	go func() { _, _ = io.WriteString(client, first) }()
	if _, err := io.ReadFull(c, make([]byte, len(first))); err != nil {
		t.Fatal(err)
	}
	limits.waits(&c.entry)
	t.Cleanup(func() {
		_, _ = server.Close(), client.Close()
		limits.leave(&c.entry)
	})
	return c, client
}

const (
	headerTime = time.Minute
	request1   = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	settings   = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	halfHeader = "\x00\x00\x05\x01\x04\x00\x00\x00\x01"
	ping       = "\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "kgate..."
)

// TestAskedToLeave: what the reader of an idle connection does when the limiter wants its place.
func TestAskedToLeave(t *testing.T) {
	const h2 = http2.ClientPreface + settings
	for _, c := range []struct {
		name   string
		first  string // comes before the connection is idle
		half   string // comes then, and is read
		after  string // comes when it has been asked to leave
		in     time.Duration
		read   string // by net/http, from half on
		ends   error  // nil: EOF
		within time.Duration
		leaves bool
	}{
		{"HTTP/1", request1, "", "", 0, "", os.ErrDeadlineExceeded, lastCall, true},
		{"HTTP/1, a byte has come", request1, "", "G", lastCall / 2, "G", os.ErrDeadlineExceeded, lastCall/2 + headerTime, false},
		{"HTTP/2", h2, "", "", 0, goodbye, nil, lastCall + goodbyeTime, true},
		{"HTTP/2, a frame has come", h2, "", ping, lastCall / 2, ping, nil, time.Hour, false},
		{"HTTP/2, half a frame has come", h2, halfHeader, "", 0, halfHeader, os.ErrDeadlineExceeded, headerTime, false},
		{"HTTP/2, a frame crosses the GOAWAY", h2, "", ping, 2 * lastCall, goodbye + ping, nil, lastCall + goodbyeTime, true},
		{"HTTP/2 without settings", http2.ClientPreface, "", "", 0, "", nil, lastCall, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, client := kept(t, c.first)
				limits := conn.listener.limiter
				time.Sleep(keptFor)
				var read []byte
				var err error
				began := time.Now()
				ended := make(chan time.Duration)
				go func() {
					read, err = io.ReadAll(conn)
					ended <- time.Since(began)
				}()
				if c.half != "" {
					_, _ = io.WriteString(client, c.half)
					synctest.Wait()
				}
				limits.mu.Lock()
				limits.waiting.Add(1)
				limits.makeRoomLocked()
				limits.waiting.Add(-1)
				limits.mu.Unlock()
				if c.after != "" {
					time.Sleep(c.in)
					for b := range []byte(c.after) { // each on its own
						_, _ = io.WriteString(client, c.after[b:b+1])
					}
				}
				synctest.Wait()
				if leaves := conn.entry.leaving; leaves != c.leaves {
					t.Errorf("leaves: %v", leaves)
				}
				defer time.AfterFunc(time.Until(began.Add(time.Hour)), func() { _ = client.Close() }).Stop()
				if took := <-ended; string(read) != c.read || !errors.Is(err, c.ends) || took != c.within {
					t.Errorf("read %q, %v, after %v; want %q, %v, after %v", read, err, took, c.read, c.ends, c.within)
				}
			})
		})
	}
}

// TestRequestBeforeGoodbye: an HTTP/2 connection that has been told to go stays for as long as it
// has a request.
func TestRequestBeforeGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := kept(t, http2.ClientPreface+settings)
		limits := conn.listener.limiter
		time.Sleep(keptFor)
		limits.mu.Lock()
		limits.waiting.Add(1)
		limits.makeRoomLocked()
		limits.mu.Unlock()
		if n, err := conn.Read(make([]byte, 100)); n != len(goodbye) || err != nil {
			t.Fatal(n, err)
		}
		limits.serves(&conn.entry)
		time.AfterFunc(time.Hour, func() { _, _ = io.WriteString(client, ping) })
		began := time.Now()
		n, err := conn.Read(make([]byte, 100))
		if took := time.Since(began); n != len(ping) || err != nil || took != time.Hour || limits.leaving != 0 {
			t.Errorf("read %d bytes, %v, after %v; %d are leaving", n, err, took, limits.leaving)
		}
	})
}
