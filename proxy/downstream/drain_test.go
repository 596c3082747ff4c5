package downstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

type onlyHTTP struct{ http.HandlerFunc }

func (onlyHTTP) ServeConn(context.Context, *Conn, string) {}
func (onlyHTTP) Close()                                   {}

func serveWith(t *testing.T, most int, h http.HandlerFunc) string {
	t.Helper()
	_, addr := serverWith(t, most, h)
	return addr
}

func serverWith(t *testing.T, most int, h http.HandlerFunc) (*Server, string) {
	t.Helper()
	s, err := NewServer(Config{Handler: onlyHTTP{h}, MaxConnections: most})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return s, l.Addr().String()
}

func say(t *testing.T, addr, what string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, what)
	return c
}

// TestDrainingMakeRoom: a connection that only drains gives its place to one that waits.
func TestDrainingMakeRoom(t *testing.T) {
	addr := serveWith(t, 2, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	for range 2 {
		say(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
	}
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	c := say(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, _ = c.Read(make([]byte, 1))
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("waited %v", d)
	}
}

// TestStalledMakeRoom: a client that sends requests and reads no answers gives its place to one that
// waits, in seconds; one that reads slowly keeps it.
func TestStalledMakeRoom(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a client has acknowledged is known on Linux only")
	}
	t.Parallel()
	answer := make([]byte, 4<<10) // fits into the buffer: it goes out when the handler has returned
	addr := serveWith(t, 3, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	pipeline := func() net.Conn {
		c := say(t, addr, "")
		go func() {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
		}()
		return c
	}
	slow, _, _ := pipeline(), pipeline(), pipeline()
	var read atomic.Int64
	go func() {
		// More slowly than a busy machine answers: else it is between two requests now and then, and makes room.
		for b := make([]byte, 8<<10); ; time.Sleep(50 * time.Millisecond) {
			n, err := slow.Read(b)
			if err != nil {
				return
			}
			read.Add(int64(n))
		}
	}()
	time.Sleep(lookEvery) // until their buffers are full
	for range 2 {
		c := say(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	before := read.Load()
	time.Sleep(lookEvery)
	if read.Load() == before {
		t.Error("the client that reads slowly has lost its place")
	}
}

// TestShutdownAcceptsAll: who has connected while as many are served as may be is served before the server ends.
func TestShutdownAcceptsAll(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	s, addr := serverWith(t, 2, func(http.ResponseWriter, *http.Request) { <-proceed })
	var all []net.Conn
	for range 6 {
		all = append(all, say(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	time.Sleep(2500 * time.Millisecond) // longer than a server waits that does not know
	close(proceed)
	for _, c := range all {
		if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestReadFromSaysContinue: a handler may answer with the body of a request that expects 100 Continue.
func TestReadFromSaysContinue(t *testing.T) {
	returned := make(chan struct{})
	addr := serveWith(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = io.Copy(w, r.Body)
		close(returned)
	})
	c := say(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
	select {
	case <-returned:
	case <-time.After(2 * time.Second):
		_ = c.Close()
		t.Error("the handler waits for itself")
	}
}
