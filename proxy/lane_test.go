package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// tcpPair returns both ends of a TCP connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	_ = far.SetDeadline(time.Now().Add(patience))
	return near, far
}

// TestLaneEnd: the end of a lane resets its connections, with what they had not
// sent yet; a dial that was under way meanwhile gives none.
func TestLaneEnd(t *testing.T) {
	near, far := tcpPair(t)
	late, lateFar := tcpPair(t)
	standing := uint64(1)
	dialled := near
	l := newLane(1, func() uint64 { return standing }, &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dialled, nil },
	})
	dial := func() (net.Conn, error) { return l.transport.DialContext(t.Context(), "tcp", "h:80") }
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = io.Copy(c, endless{}) // until nothing more fits
	l.end()
	if n, err := io.Copy(io.Discard, far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end got %d bytes and %v, want a reset", n, err)
	}
	dialled = late
	if _, err := dial(); !errors.Is(err, errLapsed) {
		t.Errorf("dialled in time, added too late: %v", err)
	}
	if _, err := lateFar.Read(make([]byte, 1)); err == nil {
		t.Error("that connection is open")
	}
	standing, dialled = 2, nil
	if _, err := dial(); !errors.Is(err, errLapsed) {
		t.Errorf("dialled too late: %v", err)
	}
}

// TestHalfClose: an upgraded connection can be closed one way, guarded or not.
func TestHalfClose(t *testing.T) {
	g := newGateway(t, 1, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	c.send("last words")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c.br); err != nil || string(b) != "last words" {
		t.Errorf("got %q, %v", b, err)
	}
	g.sem.await(0, 0)
}

// TestUpstreamHalfCloses: the other way round; the client may go on talking.
func TestUpstreamHalfCloses(t *testing.T) {
	heard := make(chan string, 1)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nthat is all")
		_ = brw.Flush()
		_ = conn.(meteredConn).Conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(brw)
		heard <- string(b)
	}))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	if b, err := io.ReadAll(c.br); err != nil || string(b) != "that is all" {
		t.Errorf("got %q, %v", b, err)
	}
	c.send("last words")
	_ = c.Close()
	if got := <-heard; got != "last words" {
		t.Errorf("the upstream heard %q", got)
	}
}
