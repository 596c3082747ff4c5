package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
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

// echoUpgrade answers an upgrade with an echo.
func echoUpgrade(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(conn, brw)
	}
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// TestUpgrade: an upgraded connection holds its slot until it is closed.
func TestUpgrade(t *testing.T) {
	g := newGateway(t, 1, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	res := c.response()
	if res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" || res.Header.Get("Server-Timing") == "" {
		t.Fatalf("got %v %v", res.Status, res.Header)
	}
	for range 3 {
		c.send("ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c.br, buf); err != nil || string(buf) != "ping" {
			t.Fatalf("echo %q, %v", buf, err)
		}
		if g.sem.now() != 1 {
			t.Fatal("the slot was released while the connection is open")
		}
	}
	_ = c.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Status != 101 || rec.Outcome != admission.OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}

// TestUpgradeHalfClosed: a client that has closed its sending side gets the rest of the answer,
// also where its request had a body, and in a program's own server.
func TestUpgradeHalfClosed(t *testing.T) {
	needDisconnectWatch(t)
	const late = 300 * time.Millisecond // longer than it takes to notice that a client has left
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(io.Discard, brw)
		time.Sleep(late)
		_, _ = io.WriteString(conn, "late")
	}))
	foreign := httptest.NewUnstartedServer(g.handler)
	foreign.Config.ConnContext = downstream.ConnContext
	foreign.Start()
	defer foreign.Close()
	for name, addr := range map[string]string{"kgate's server": g.addr, "a program's server": foreign.Listener.Addr().String()} {
		for _, body := range []string{"", "{}"} {
			g.addr = addr
			c := g.dial()
			c.send(fmt.Sprintf("POST /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			if res := c.response(); res.StatusCode != 101 {
				t.Fatalf("%s, body %q: got %v", name, body, res.Status)
			}
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			if rest, err := io.ReadAll(c.br); string(rest) != "late" || err != nil {
				t.Errorf("%s, body %q: read %q, %v", name, body, rest, err)
			}
			_ = c.Close()
		}
	}
}

// TestUpgradeRefused: an upstream that answers with another protocol, or not
// at all with one, costs no slot.
func TestUpgradeRefused(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			_, _ = io.WriteString(w, "no")
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(io.Discard, brw) // until the gateway closes it
	}))
	c := g.dial()
	c.send(upgradeRequest)
	if res := c.response(); res.StatusCode != 502 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	c = g.dial()
	c.send(strings.Replace(upgradeRequest, "/ws", "/plain", 1))
	if res := c.response(); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
}
