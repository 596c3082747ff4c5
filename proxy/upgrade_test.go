package proxy

import (
	"io"
	"net"
	"net/http"
	"testing"
)

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
