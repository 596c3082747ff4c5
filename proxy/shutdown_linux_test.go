package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// slowListener takes its time.
type slowListener struct{ *net.TCPListener }

func (l slowListener) Accept() (net.Conn, error) {
	time.Sleep(60 * time.Millisecond)
	return l.TCPListener.Accept()
}

// asks sends one request over a connection of its own. An error of op "dial" says that there was none.
func asks(addr string) (status int, err error) {
	conn, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// TestShutdownServesTheConnected: so does one that is connected, and not accepted yet: a
// listener that is closed resets it.
func TestShutdownServesTheConnected(t *testing.T) {
	t.Parallel()
	const clients = 5
	g := newGateway(t, clients, http.HandlerFunc(echoRequest))
	server, l := g.another()
	served := make(chan error, 1)
	go func() { served <- server.Serve(slowListener{l.(*net.TCPListener)}) }()
	first := g.dial() // until it is answered the server is not there to be shut down
	first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	first.response()
	var conns []*rawConn
	for range clients {
		conn := g.dial()
		conn.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		conns = append(conns, conn)
	}
	var late sync.WaitGroup
	for range clients { // they come until nobody can connect any more
		late.Go(func() {
			for {
				res, err := asks(g.addr)
				if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
					return
				}
				if err != nil || res != http.StatusOK {
					t.Errorf("one who came late got %d, %v", res, err)
				}
			}
		})
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	late.Wait()
	for _, conn := range conns {
		if res := conn.response(); res.StatusCode != http.StatusOK {
			t.Errorf("got %s", res.Status)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
