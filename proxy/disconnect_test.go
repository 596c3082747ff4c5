package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/upstream"
)

// needDisconnectWatch skips where the kernel is not asked.
func needDisconnectWatch(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("see disconnect_other.go")
	}
}

// dialTLS is dial over TLS, with the given protocol.
func (g *gateway) dialTLS(protocol string) *rawConn {
	c := g.dial()
	c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	c.br.Reset(c.Conn)
	return c
}

// serveTLS serves the gateway's handler over TLS, too.
func (g *gateway) serveTLS(cfg downstream.Config) {
	g.t.Helper()
	cfg.TLS = ownTLS()
	g.listen(cfg)
}

// TestClientLeaves: a client that closes its connection gives up its place in line,
// or its slot, whatever it has sent behind its request.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	needDisconnectWatch(t)
	const (
		get  = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
	)
	cases := []struct{ name, sent string }{
		{"GET", get},
		{"GET and CR", get + "\r"},
		{"GET and CRLF", get + "\r\n"},
		{"GET and garbage", get + strings.Repeat("x", 10_000)},
		{"GET and another", get + get},
		{"POST without its body", post},
		// More than fits any buffer on the way, and less than announced.
		{"POST with some of its body", post + strings.Repeat("x", 10_000)},
		{"POST with its body and CR", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r"},
		{"Expect", "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"},
	}
	for over, protocol := range map[string]string{"clear": "", "TLS": "http/1.1"} {
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			up.pass(r)
		}))
		dial := g.dial
		if protocol != "" {
			g.serveTLS(downstream.Config{})
			dial = func() *rawConn { return g.dialTLS(protocol) }
		}
		for _, c := range cases {
			for _, how := range []string{"closes", "closes its side", "resets"} {
				t.Run(c.name+", "+over+", "+how, func(t *testing.T) {
					g.t = t
					served, waiting := dial(), dial()
					served.send(c.sent)
					up.awaitEntered(t)
					waiting.send(c.sent)
					g.sem.await(1, 1)
					waiting.leave(how)
					g.sem.await(1, 0)
					if rec := g.records.next(t); rec.Outcome != admission.OutcomeClientGone || rec.Status != 499 {
						t.Errorf("record %+v", rec)
					}
					served.response() // its answer has begun
					served.leave(how)
					g.sem.await(0, 0)
					if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted {
						t.Errorf("record %+v", rec)
					}
				})
			}
		}
		g.t = t
		close(up.proceed)
	}
}

// leave closes the connection in one of three ways.
func (c *rawConn) leave(how string) {
	c.t.Helper()
	tcp := c.Conn
	if secure, ok := c.Conn.(*tls.Conn); ok {
		tcp = secure.NetConn()
	}
	var err error
	switch how {
	case "closes its side":
		err = tcp.(socket).CloseWrite()
	case "resets":
		if err = tcp.(socket).SetLinger(0); err == nil {
			err = tcp.Close()
		}
	default:
		err = c.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestHalfClosedUpgrade: once a connection is upgraded, its client may close its
// side and still be sent what is left.
func TestHalfClosedUpgrade(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		got, _ := io.ReadAll(brw)
		_, _ = conn.Write(got)
	}))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	if res := c.response(); res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", res.StatusCode)
	}
	c.send("hello")
	c.leave("closes its side")
	if got, err := io.ReadAll(c.br); string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestExpectUnanswered: an upstream that answers before it has asked for the
// body and then waits for it all the same, as net/http's server does, hangs. The
// slot is held no longer than the client stays.
func TestExpectUnanswered(t *testing.T) {
	needDisconnectWatch(t)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	c := g.dial()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if res := c.response(); res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	_ = c.Close()
	g.sem.await(0, 0)
}

// countedConn counts the system calls that read: each Read is one at least.
type countedConn struct {
	net.Conn
	reads *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(p)
}

// SyscallConn lets the watch find the socket.
func (c countedConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

type countedListener struct {
	net.Listener
	reads *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.reads}, err
}

// TestNoReadForTheEnd: net/http does not read to see a client leave whose end the
// kernel tells, and does not try again and again. Where it ends by itself is shown
// by TestClientLeaves.
func TestNoReadForTheEnd(t *testing.T) {
	needDisconnectWatch(t)
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	var reads atomic.Int64
	g.listen(downstream.Config{}, func(l net.Listener) net.Listener { return countedListener{l, &reads} })
	c := g.dial()
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	c.send(get)
	up.awaitEntered(t) // net/http may not have been known by its buffer before
	up.proceed <- struct{}{}
	c.response()
	before := reads.Load()
	for range 20 {
		c.send(get)
		up.awaitEntered(t)
		time.Sleep(5 * time.Millisecond) // in which it would read
		up.proceed <- struct{}{}
		c.response()
	}
	if n := reads.Load() - before; n > 25 { // one for each request, and a few that are cut in two
		t.Errorf("%d reads for 20 requests", n)
	}
}

// stuck is a requester whose requests are aborted, and whose connections to the
// upstream do not close for as long as a test likes.
type stuck struct{ entered, closes chan struct{} }

func (s *stuck) Do(req *upstream.Request, _ upstream.Caller) (*upstream.Response, error) {
	req.Context().(upstream.Context).Attach(s)
	s.entered <- struct{}{}
	<-s.closes
	return nil, req.Context().Err()
}

func (s *stuck) Close() error {
	<-s.closes
	return nil
}

// TestLeavingWaitsForNobody: a client's leaving is noticed, and a slot is lost, whatever
// becomes of another one's connection to the upstream.
func TestLeavingWaitsForNobody(t *testing.T) {
	t.Parallel()
	needDisconnectWatch(t)
	const k = 2
	s := &stuck{entered: make(chan struct{}, k), closes: make(chan struct{})}
	g := newGateway(t, k, nil)
	g.handler.current.Load().balancers["p"].backends[0].requests = s
	var clients []*rawConn
	for i := range 2 * k {
		c := g.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		clients = append(clients, c)
		if i < k {
			<-s.entered
		}
	}
	g.sem.await(k, k)
	_ = clients[0].Close()
	_ = clients[k].Close()
	g.sem.await(k, k-1)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for _, slot := range g.sem.slots {
			slot.lose()
		}
	}()
	select {
	case <-lost:
	case <-time.After(patience):
		t.Error("who has lost the slots waits for one of them")
	}
	_ = clients[k+1].Close()
	g.sem.await(k, 0)
	close(s.closes)
}
