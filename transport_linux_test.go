package kgate

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestTransportUpgrade: the server hears at once that a connection in another protocol has
// ended, whoever ends it, even if it has not taken what was written before. If it takes
// that, it gets all of it.
func TestTransportUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*http.Response, *proxy.Held)
		words int
	}{
		"closed":                 {func(res *http.Response, _ *proxy.Held) { _ = res.Body.Close() }, 0},
		"released":               {func(_ *http.Response, held *proxy.Held) { held.End(ErrLost) }, 0},
		"closed with last words": {func(res *http.Response, _ *proxy.Held) { _ = res.Body.Close() }, 100},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			accepted := make(chan *net.TCPConn, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				accepted <- conn.(*net.TCPConn)
			}()
			var standing atomic.Uint64
			standing.Store(1)
			ctx := slotUnder(t, &standing)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String(), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "x")
			res, err := newFenced(nil, standing.Load).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			server := <-accepted
			defer server.Close()
			stream := res.Body.(io.ReadWriteCloser)
			if c.words > 0 {
				_, _ = stream.Write(make([]byte, c.words))
				c.end(res, proxy.HeldIn(ctx))
				if got, err := io.ReadAll(server); len(got) != c.words || err != nil {
					t.Errorf("the server reads %d of %d bytes, %v", len(got), c.words, err)
				}
				return
			}
			written := make(chan struct{})
			go func() { // more than the systems take
				defer close(written)
				_, _ = stream.Write(make([]byte, 64<<20))
			}()
			socket := res.Body.(*switched).Stream()
			for before := uint64(0); ; time.Sleep(20 * time.Millisecond) {
				acked, waiting := tcpstate.Acked(socket)
				if waiting && acked == before {
					break
				}
				before = acked
			}
			c.end(res, proxy.HeldIn(ctx))
			for until := time.Now().Add(time.Second); tcpstate.IsEstablished(server); time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("the server does not hear of it")
				}
			}
			<-written
		})
	}
}

// TestTransportSwitchesUnasked: a server that answers with status 101 to a request for no
// other protocol has heard of the connection's end when the request has failed.
func TestTransportSwitchesUnasked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			accepted <- conn.(*net.TCPConn) // only now: a system that is within a write has not looked at what comes
		}
	}()
	var standing atomic.Uint64
	standing.Store(1)
	rt := newFenced(new(http.Transport), standing.Load)
	for i := range 20 {
		req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodGet, "http://"+l.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(req)
		if !errors.Is(err, errUnasked) {
			t.Errorf("%v, %v", res, err)
		}
		server := <-accepted
		if tcpstate.IsEstablished(server) {
			t.Fatalf("the connection of request %d is open", i)
		}
		_ = server.Close()
	}
}
