package proxy

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// slowListener takes its time.
type slowListener struct{ *net.TCPListener }

func (l slowListener) Accept() (net.Conn, error) {
	time.Sleep(60 * time.Millisecond)
	return l.TCPListener.Accept()
}

// TestShutdownServesTheConnected: so does one that is connected, and not accepted yet: a
// listener that is closed resets it.
func TestShutdownServesTheConnected(t *testing.T) {
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
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, conn := range conns {
		if res := conn.response(); res.StatusCode != http.StatusOK {
			t.Errorf("got %s", res.Status)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
