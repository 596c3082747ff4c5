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

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// TestShutdownWaits: Shutdown lets requests and upgrades finish; when its time
// is over it breaks them off.
func TestShutdownWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

func TestShutdownBreaksOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestShutdownTells: when the time of Shutdown is over, who waits and who has no answer yet is told
// why there will be none.
func TestShutdownTells(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		log := new(safeBuffer)
		g := newGateway(t, 3, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			up.entered <- r
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}), log.into)
		h2 := h2cClient(t)
		answers := make(chan *http.Response, 5)
		limit, end := context.WithTimeout(t.Context(), patience)
		defer end()
		send := func(client *http.Client, body io.Reader) {
			go func() {
				req, err := http.NewRequestWithContext(limit, http.MethodPost, g.url, body)
				if err != nil {
					t.Error(err)
				}
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					res = new(http.Response)
				}
				answers <- res
			}()
		}
		send(h2, nil)
		send(g.client, nil)
		upload, more := io.Pipe() // its end does not come
		defer more.Close()
		send(g.client, upload)
		for range 3 {
			up.awaitEntered(t)
		}
		send(h2, nil)
		send(g.client, nil)
		g.sem.await(3, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := g.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != lastWord+20*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		_ = more.Close() // net/http's client waits for it if the connection is just closed
		for range 5 {
			res := <-answers
			if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Kgate-Refusal") != "draining" {
				t.Errorf("got %s, %v", res.Status, res.Header)
			}
			if res.Body != nil {
				_ = res.Body.Close()
			}
			if rec := g.records.next(t); rec.Outcome != admission.Draining.Outcome() || rec.Status != http.StatusServiceUnavailable {
				t.Errorf("recorded %s, %d", rec.Outcome, rec.Status)
			}
		}
		if n := strings.Count(log.String(), "the gateway stops"); n < 3 {
			t.Errorf("%d of 3 in flight are in the log:\n%s", n, log)
		}
		g.sem.await(0, 0)
	})
}

// TestShutdownEndsStalled: clients that read nothing of an answer do not hold up the end.
func TestShutdownEndsStalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}))
		g.dial().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		res, err := h2cClient(t).Get(g.url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		g.sem.await(2, 0)
		began := time.Now()
		if err := g.server.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > lastWord {
			t.Errorf("the end took %v", took)
		}
		g.sem.await(0, 0)
	})
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
