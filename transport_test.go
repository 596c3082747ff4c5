package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kgate/kgate/proxy"
)

// leased is a slot under a lease that the test takes away, without telling: as it is for
// a process that was stopped.
type leased struct {
	proxy.Slot // not used
	standing   *atomic.Uint64
	under      uint64
}

func (l leased) Valid() bool   { return l.standing.Load() == l.under }
func (l leased) Fence() string { return "p/1/1/1" }

// slotUnder returns a context with a slot.
func slotUnder(t *testing.T, standing *atomic.Uint64) context.Context {
	t.Helper()
	return proxy.WithHeld(t.Context(), &proxy.Held{Slot: leased{standing: standing, under: standing.Load()}})
}

// another returns ctx with another slot, under the same lease.
func another(ctx context.Context) context.Context {
	return proxy.WithHeld(ctx, &proxy.Held{Slot: proxy.HeldIn(ctx).Slot})
}

// TestTransport: no byte is written after the lease is lost, though nothing has told the
// request. A plain transport is what catches the judge asleep.
func TestTransport(t *testing.T) {
	for name, c := range map[string]struct {
		tls, plain bool
	}{"http": {}, "https": {tls: true}, "planted: plain": {plain: true}} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Int64
			first := make(chan struct{}, 1)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Kgate-Fence"); (got == "p/1/1/1") == c.plain {
					t.Errorf("fence %q", got)
				}
				buf := make([]byte, 1)
				for {
					n, err := r.Body.Read(buf)
					if n > 0 && received.Add(1) == 1 {
						first <- struct{}{}
					}
					if err != nil {
						return
					}
				}
			}))
			if s.EnableHTTP2 = c.tls; c.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			var standing atomic.Uint64
			standing.Store(1)
			base := s.Client().Transport.(*http.Transport)
			base.ForceAttemptHTTP2 = c.tls
			var rt http.RoundTripper = base
			if !c.plain {
				rt = newFenced(base, standing.Load)
			}
			client := http.Client{Transport: rt}
			defer client.CloseIdleConnections()
			body, feed := io.Pipe()
			req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodPost, s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				res, err := client.Do(req)
				if err == nil {
					err = res.Body.Close()
				}
				ended <- err
			}()
			_, _ = feed.Write([]byte("a"))
			<-first
			standing.Store(2) // another lease is as bad as none
			go func() {
				_, _ = feed.Write([]byte("b"))
				_ = feed.Close()
			}()
			err = <-ended
			s.Close() // it has read what there is
			if got := received.Load(); c.plain != (got == 2) {
				t.Errorf("%d bytes have come", got)
			}
			if c.plain != (err == nil) {
				t.Errorf("the request: %v", err)
			}
		})
	}
}

// TestTransportKept: a connection that was made under the lease before is not used under
// the next one, by whatever slot.
func TestTransportKept(t *testing.T) {
	seen := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RemoteAddr }))
	defer s.Close()
	var standing atomic.Uint64
	standing.Store(1)
	client := http.Client{Transport: newFenced(nil, standing.Load), Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	before := slotUnder(t, &standing)
	for range 2 {
		if err := get(before); err != nil {
			t.Fatal(err)
		}
	}
	standing.Store(2)
	if err := get(before); !errors.Is(err, ErrLost) {
		t.Errorf("with a lost slot: %v", err)
	}
	if err := get(slotUnder(t, &standing)); err != nil {
		t.Errorf("with a new slot: %v", err)
	}
	if err := get(t.Context()); !errors.Is(err, errNoSlot) {
		t.Errorf("without a slot: %v", err)
	}
	close(seen)
	var remotes []string
	for r := range seen {
		remotes = append(remotes, r)
	}
	if len(remotes) != 3 || remotes[0] != remotes[1] || remotes[1] == remotes[2] {
		t.Errorf("connections: %v", remotes)
	}
}

// TestTransportIsApart: what the program's own transport has opened is not used, whichever
// HTTP/2 it has.
func TestTransportIsApart(t *testing.T) {
	for name, configure := range map[string]func(*http.Transport) error{
		"HTTP/2 of net/http":         func(base *http.Transport) error { base.ForceAttemptHTTP2 = true; return nil },
		//lint:ignore SA1019 programs use it
		"HTTP/2 of golang.org/x/net": http2.ConfigureTransport,
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) }))
			s.EnableHTTP2 = true
			s.StartTLS()
			defer s.Close()
			var standing atomic.Uint64
			standing.Store(1)
			base := s.Client().Transport.(*http.Transport).Clone()
			base.TLSNextProto = nil
			if err := configure(base); err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for _, rt := range []http.RoundTripper{base, newFenced(base, standing.Load)} {
				req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodGet, s.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				client := http.Client{Transport: rt}
				defer client.CloseIdleConnections()
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				remote, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.ProtoMajor != 2 {
					t.Errorf("over %s", res.Proto)
				}
				seen[string(remote)] = true
			}
			if len(seen) != 2 {
				t.Errorf("both used the connections %v", seen)
			}
		})
	}
}

// TestTransportDialTLS: a program's own TLS is fenced, too, and HTTP/2 on it is refused.
func TestTransportDialTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	var standing atomic.Uint64
	standing.Store(1)
	for next, want := range map[string]error{"http/1.1": nil, "h2": errDialTLS} {
		secure := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		secure.NextProtos = []string{next}
		client := http.Client{Transport: newFenced(&http.Transport{DialTLSContext: (&tls.Dialer{Config: secure}).DialContext}, standing.Load)}
		req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", next, err)
		}
		if err == nil {
			_ = res.Body.Close()
			standing.Store(2)
			if res, err := client.Do(req.Clone(slotUnder(t, &standing))); err != nil {
				t.Errorf("under the next lease: %v", err)
			} else {
				_ = res.Body.Close()
			}
		}
		client.CloseIdleConnections()
	}
}

// TestTransportLate: the lease runs out while a request waits for its connection, and the
// node has another one when that is made. Nothing is written.
func TestTransportLate(t *testing.T) {
	var standing atomic.Uint64
	standing.Store(1)
	var came atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	defer s.Close()
	client := http.Client{Transport: newFenced(nil, standing.Load)}
	defer client.CloseIdleConnections()
	ctx := httptrace.WithClientTrace(slotUnder(t, &standing), &httptrace.ClientTrace{GetConn: func(string) { standing.Store(2) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if err == nil || came.Load() != 0 {
		t.Errorf("%d requests have come with a lost slot: %v", came.Load(), err)
	}
}

// TestTransportResets: of a request that is aborted while it uploads, nothing more is
// sent, also not what the system has of it already. An early answer that is read to its
// end breaks it off, too.
func TestTransportResets(t *testing.T) {
	for name, answer := range map[string]string{"cancelled": "", "answered": "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var standing atomic.Uint64
			standing.Store(1)
			client := http.Client{Transport: newFenced(nil, standing.Load)}
			defer client.CloseIdleConnections()
			ctx, cancel := context.WithCancel(slotUnder(t, &standing))
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+l.Addr().String(), endless{})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				res, err := client.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				ended <- err
			}()
			upstream, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer upstream.Close()
			if _, err := io.ReadFull(upstream, make([]byte, 100_000)); err != nil { // it has begun
				t.Fatal(err)
			}
			if _, err := io.WriteString(upstream, answer); err != nil {
				t.Fatal(err)
			}
			if answer == "" {
				cancel()
			}
			if err := <-ended; errors.Is(err, context.Canceled) != (answer == "") {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, upstream); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the upstream's connection has ended by %v, not by a reset", err)
			}
		})
	}
}

// endless is a body without an end.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestTransportSharedConnection: a slot that is lost when its request gets a connection of
// HTTP/2 ends this request, before anything of it is sent, and no other one.
func TestTransportSharedConnection(t *testing.T) {
	for _, secure := range []bool{true, false} {
		came, proceed := make(chan string, 9), make(chan struct{})
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came <- r.URL.Path
			_ = http.NewResponseController(w).Flush()
			<-proceed
			_, _ = io.WriteString(w, "whole")
		}))
		base := new(http.Transport)
		if secure {
			s.EnableHTTP2 = true
			s.StartTLS()
			base = s.Client().Transport.(*http.Transport)
			base.ForceAttemptHTTP2 = true
		} else {
			s.Config.Protocols, base.Protocols = new(http.Protocols), new(http.Protocols)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			base.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
		}
		t.Cleanup(s.Close)
		var lease, own atomic.Uint64
		lease.Store(1)
		own.Store(1)
		client := http.Client{Transport: newFenced(base, lease.Load)}
		defer client.CloseIdleConnections()
		do := func(ctx context.Context, path string) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			return client.Do(req)
		}
		res, err := do(slotUnder(t, &lease), "/first")
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != 2 {
			t.Fatalf("over %s", res.Proto)
		}
		late := httptrace.WithClientTrace(slotUnder(t, &own), &httptrace.ClientTrace{GetConn: func(string) { own.Store(2) }})
		if lost, err := do(late, "/second"); !errors.Is(err, ErrLost) {
			t.Errorf("with a lost slot: %v", err)
			if err == nil {
				_ = lost.Body.Close()
			}
		}
		close(proceed)
		if got, err := io.ReadAll(res.Body); string(got) != "whole" || err != nil {
			t.Errorf("another request on the connection reads %q, %v", got, err)
		}
		_ = res.Body.Close()
		if len(came) != 1 {
			t.Errorf("%d requests have come, one of them with a lost slot", len(came))
		}
	}
}

// TestTransportHandsOn: net/http hands a connection on before it says that it was idle. Only
// the request that has it now decides how it ends.
func TestTransportHandsOn(t *testing.T) {
	conn := new(fencedConn)
	var first, second use
	first.begin(conn)
	second.begin(conn)
	first.over()
	if conn.serves.Load() != &second {
		t.Error("the end of the first request counts as that of the second")
	}
	second.over()
	if conn.serves.Load() != nil {
		t.Error("nothing is in flight, and the connection does not know")
	}
}

// TestTransportSlow: a request whose time is over while the server is still at work is not sent
// again over another connection.
func TestTransportSlow(t *testing.T) {
	for name, c := range map[string]struct{ http2, byContext bool }{
		"HTTP/1.1, ResponseHeaderTimeout": {}, "HTTP/1.1, context": {byContext: true},
		"HTTP/2, ResponseHeaderTimeout": {http2: true}, "HTTP/2, context": {http2: true, byContext: true},
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 100 * time.Millisecond
			var seen atomic.Int64
			over := make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if seen.Add(1) > 1 {
					<-over
				}
			}))
			s.EnableHTTP2 = c.http2
			s.StartTLS()
			defer s.Close()
			defer close(over)
			var standing atomic.Uint64
			standing.Store(1)
			base := s.Client().Transport.(*http.Transport)
			base.ForceAttemptHTTP2 = c.http2
			ctx := slotUnder(t, &standing)
			if !c.byContext {
				base.ResponseHeaderTimeout = limit
			}
			client := http.Client{Transport: newFenced(base, standing.Load)}
			defer client.CloseIdleConnections()
			for i := range 2 {
				if i == 1 && c.byContext {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := client.Do(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if (err == nil) != (i == 0) {
					t.Errorf("request %d: %v", i, err)
				}
			}
			if n := seen.Load(); n != 2 {
				t.Errorf("the server saw the second request %d times", n-1)
			}
		})
	}
}
