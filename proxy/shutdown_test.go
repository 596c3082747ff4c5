package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
)

// TestShutdownWaits: Shutdown lets requests and upgrades finish; when its time
// is over it breaks them off.
func TestShutdownWaits(t *testing.T) {
	g := newGateway(t, 2, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	down := make(chan error, 1)
	go func() { down <- g.server.Shutdown(context.Background()) }()
	c.send("ping")
	if _, err := io.ReadFull(c.br, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-down:
		t.Fatal("Shutdown did not wait for the upgrade", err)
	default:
	}
	_ = c.Close()
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownBreaksOff(t *testing.T) {
	up := newGate()
	mux := http.NewServeMux()
	mux.Handle("/ws", echoUpgrade(t))
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { up.pass(r) })
	g := newGateway(t, 2, mux)
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	d := g.dial()
	d.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)
	w := g.dial()
	w.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	g.sem.await(2, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	g.sem.await(0, 0)
	if _, err := io.Copy(io.Discard, c.br); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// another returns another server of the gateway, and the listener that it is to serve, which
// dial leads to from now on.
func (g *gateway) another() (*downstream.Server, net.Listener) {
	g.t.Helper()
	server, err := downstream.NewServer(downstream.Config{Handler: g.handler})
	if err != nil {
		g.t.Fatal(err)
	}
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	l, err := c.Listen(g.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	g.addr = l.Addr().String()
	return server, l
}

// lateListener accepts one connection, and has shut called before it hands the
// connection on.
type lateListener struct {
	net.Listener
	shut   func()
	closed chan struct{} // by Close
	once   sync.Once
}

func (l *lateListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		go l.shut()
		<-l.closed
	}
	return conn, err
}

func (l *lateListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// TestShutdownServesTheAccepted: a client whose connection has been accepted when
// the server shuts down gets an answer.
func TestShutdownServesTheAccepted(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	server, l := g.another()
	down := make(chan error, 1)
	late := &lateListener{Listener: l, closed: make(chan struct{}), shut: func() { down <- server.Shutdown(context.Background()) }}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(late); err != nil {
			t.Error(err)
		}
	})
	conn := g.dial()
	conn.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if res := conn.response(); res.StatusCode != http.StatusOK {
		t.Errorf("got %s", res.Status)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	wg.Wait()
}
