package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// splicedConn counts what is copied to a client inside the kernel.
type splicedConn struct {
	net.Conn
	bytes *atomic.Int64
	decoy syscall.Conn // is watched in its place; nil: nothing is
}

// SyscallConn is called first by the watch.
func (c *splicedConn) SyscallConn() (syscall.RawConn, error) {
	if decoy := c.decoy; decoy != nil {
		c.decoy = nil
		return decoy.SyscallConn()
	}
	return c.Conn.(syscall.Conn).SyscallConn()
}

func (c *splicedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.Conn.(*net.TCPConn).ReadFrom(r)
	c.bytes.Add(n)
	return n, err
}

type splicedListener struct {
	net.Listener
	bytes     *atomic.Int64
	unwatched *atomic.Bool
}

func (l splicedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	spliced := &splicedConn{Conn: c, bytes: l.bytes}
	if l.unwatched.Load() {
		spliced.decoy = l.Listener.(syscall.Conn)
	}
	return spliced, nil
}

// TestSplice: a long answer goes from connection to connection, byte for byte, and
// both connections can be used again; a break on either side is known for what it is.
func TestSplice(t *testing.T) {
	t.Parallel()
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	const headerTime = time.Second
	up := newGate()
	left := make(chan struct{}, 1) // the upstream knows that it is not to go on
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.URL.Path == "/plain" {
			_, _ = w.Write(body)
			return
		}
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		if !up.pass(r) {
			left <- struct{}{}
			return
		}
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body[len(body)/2:])
	}), func(c *Config) {
		c.Pools[0].Transport.ResponseHeaderTimeout = headerTime
		c.Pools[0].HoldIdle = time.Minute
	})
	var spliced atomic.Int64
	var unwatched atomic.Bool
	g.listen(downstream.Config{}, func(l net.Listener) net.Listener { return splicedListener{l, &spliced, &unwatched} })

	get := func(method, path string) (*rawConn, *http.Response) {
		c := g.dial()
		c.send(method + " " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		res, err := http.ReadResponse(c.br, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		return c, res
	}
	outcome := func(want admission.Outcome, aborted bool) {
		t.Helper()
		if rec := g.records.next(t); rec.Outcome != want || rec.Aborted != aborted {
			t.Errorf("record %+v", rec)
		}
		g.sem.await(0, 0)
	}

	t.Run("whole", func(t *testing.T) {
		c, res := get("GET", "/plain")
		for range 2 {
			if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if rec := g.records.next(t); rec.Bytes != int64(len(body)) || rec.Aborted {
				t.Errorf("record %+v", rec)
			}
			c.send("GET /plain HTTP/1.1\r\nHost: h\r\n\r\n")
			res = c.response()
		}
		_, _ = io.Copy(io.Discard, res.Body)
		outcome(admission.OutcomeAdmitted, false)
		if n := g.metered.conns.Load(); n != 1 {
			t.Errorf("%d connections to the upstream", n)
		}
		if n := spliced.Load(); n < int64(len(body)) {
			t.Errorf("only %d bytes were spliced", n)
		}
	})
	t.Run("slow", func(t *testing.T) { // the time for the header is no time for the body
		_, res := get("GET", "/slow")
		up.awaitEntered(t)
		time.Sleep(headerTime + headerTime/5)
		up.proceed <- struct{}{}
		if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		outcome(admission.OutcomeAdmitted, false)
	})
	t.Run("HEAD", func(t *testing.T) {
		c, _ := get("HEAD", "/plain")
		outcome(admission.OutcomeAdmitted, false)
		_ = c.Close()
	})
	t.Run("the client leaves", func(t *testing.T) {
		c, res := get("GET", "/slow")
		up.awaitEntered(t)
		_, _ = io.CopyN(io.Discard, res.Body, int64(len(body)/2))
		_ = c.Close()
		outcome(admission.OutcomeAdmitted, true)
		<-left
	})
	t.Run("the client leaves, and nobody says so", func(t *testing.T) { // the write that fails does
		unwatched.Store(true)
		defer unwatched.Store(false)
		c, res := get("GET", "/slow")
		up.awaitEntered(t)
		_, _ = io.CopyN(io.Discard, res.Body, int64(len(body)/2))
		c.leave("resets")
		up.proceed <- struct{}{}
		outcome(admission.OutcomeAdmitted, true)
	})
	t.Run("the upstream breaks", func(t *testing.T) {
		_, res := get("GET", "/broken")
		up.awaitEntered(t)
		up.proceed <- struct{}{}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the answer looks whole")
		}
		outcome(admission.OutcomeUpstreamError, true)
	})
	t.Run("the slot is lost", func(t *testing.T) {
		_, res := get("GET", "/slow")
		up.awaitEntered(t)
		g.sem.last().lose()
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the answer looks whole")
		}
		outcome(admission.OutcomeAdmitted, true)
	})
}
