package library

import (
	"bufio"
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
