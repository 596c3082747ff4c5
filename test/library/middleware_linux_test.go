package library

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestReverseProxyUpgrade: the client of an upgraded connection leaves while the upstream
// takes nothing. The upstream hears of that before the next request comes, although
// httputil closes the client's connection, and with it the slot, before the upstream's.
func TestReverseProxyUpgrade(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	upgraded, open := make(chan net.Conn, 1), make(chan bool, 1)
	go func() {
		accept := func() net.Conn {
			conn, err := l.Accept()
			if err != nil {
				return nil
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			return conn
		}
		first := accept()
		_, _ = io.WriteString(first, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		upgraded <- first
		if second := accept(); second != nil {
			open <- tcpstate.IsEstablished(first)
			_ = second.Close()
		}
	}()
	to := &url.URL{Scheme: "http", Host: l.Addr().String()}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: n.Transport(nil)}
	addr := serve(t, n, proxy.ServeHTTP)
	client := dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	upstream := soon(t, "upgraded", upgraded)
	defer upstream.Close()
	_ = client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := client.Write(make([]byte, 64<<20)); err == nil {
		t.Fatal("the upstream has taken everything")
	}
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	eventually(t, "the next one waits", func() bool { return n.Stats("p").Waiting == 1 })
	_ = client.(*net.TCPConn).SetLinger(0)
	_ = client.Close()
	_, _ = upstream.Write([]byte("x")) // which tells the proxy that the client is gone
	if soon(t, "the next request", open) {
		t.Error("the next request has come, and the upstream does not know that the one before is over")
	}
}

// TestServedPostLeaves: a client that leaves while it is served, with a body that
// nobody has read to its end, ends the handler's context.
func TestServedPostLeaves(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	entered, left := make(chan bool, 1), make(chan bool, 1)
	addr := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, int64(len(r.URL.Path)-1))
		entered <- true
		select {
		case <-r.Context().Done():
			left <- true
		case <-t.Context().Done():
		}
	})
	for _, c := range []struct {
		name, path  string
		length, all int // of the body: what the client sends of it, and what it announces
	}{
		{"nothing of it has come", "/", 0, 5},
		{"it has come", "/", 5, 5},
		{"some of it has come, and been read", "/xxx", 5, 9},
		{"net/http's buffer is full", "/", 20_000, 20_000},
		{"the system's buffers are full", "/", 32 << 20, 32 << 20},
	} {
		for _, reset := range []bool{false, true} {
			if !reset && c.length > 1<<20 {
				continue // the end waits behind the body
			}
			if !t.Run(fmt.Sprintf("%s, reset %v", c.name, reset), func(t *testing.T) {
				conn := dial(t, addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", c.path, c.all))
				_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
				_, _ = conn.Write(make([]byte, c.length))
				soon(t, "the handler is called", entered)
				if reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				_ = conn.Close()
				soon(t, "the handler hears that the client has left", left)
			}) {
				return // its handler has the slot
			}
		}
	}
}

// TestServedPostIsWhole: looking whether the client leaves takes no byte from who reads
// later: the handler, net/http for the next request, or the owner of a hijacked connection.
func TestServedPostIsWhole(t *testing.T) {
	const polls = 600 * time.Millisecond // two at least
	n := cluster(t, 1, 1)[0]
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	got := make(chan []byte, 1)
	addr := serve(t, n, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			got <- []byte("next")
			return
		}
		time.Sleep(polls)
		var from io.Reader = r.Body
		if r.URL.Path == "/hijack" {
			conn, brw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "x")
			from = io.MultiReader(io.LimitReader(brw, int64(brw.Reader.Buffered())), conn) // net/http looks for the end in brw
		}
		b, err := io.ReadAll(from)
		if r.URL.Path == "/hijack" {
			time.Sleep(polls) // its client has closed one side
		}
		if err != nil || r.Context().Err() != nil {
			t.Errorf("%v; the request has ended: %v", err, r.Context().Err())
		}
		got <- b
	})
	for _, path := range []string{"/", "/hijack"} {
		conn := dial(t, addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, len(body)))
		const next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
		want := [][]byte{body, []byte("next")}
		if path == "/hijack" {
			want = [][]byte{append(body[:len(body):len(body)], next...)}
		}
		if _, err := io.WriteString(conn, string(body)+next); err != nil {
			t.Fatal(err)
		}
		if path == "/hijack" {
			_, _ = conn.Read(make([]byte, 1)) // it is hijacked
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		for _, want := range want {
			if b := soon(t, "read", got); !bytes.Equal(b, want) {
				t.Errorf("%s: %d bytes of %d have come, or others", path, len(b), len(want))
			}
		}
	}
}
