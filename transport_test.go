package kgate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

// validOnce is a slot that is lost when it has been asked for once.
type validOnce struct {
	leased
	asked atomic.Bool
}

func (v *validOnce) Valid() bool { return !v.asked.Swap(true) }

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

// TestTransportLate: the lease runs out while a request waits for its connection, and the
// node has another one when that is made. Nothing is written.
func TestTransportLate(t *testing.T) {
	var standing atomic.Uint64
	standing.Store(1)
	var came atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	defer s.Close()
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		standing.Store(2)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	client := http.Client{Transport: newFenced(base, standing.Load)}
	defer client.CloseIdleConnections()
	ctx := slotUnder(t, &standing)
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

// TestTransportRefuses: what base has for a request and cannot be fenced is no way around the fence.
func TestTransportRefuses(t *testing.T) {
	var came atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	defer s.Close()
	var standing atomic.Uint64
	standing.Store(1)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for what, base := range map[string]*http.Transport{
		"Proxy":          {Proxy: http.ProxyURL(to)},
		"DialTLSContext": {DialTLSContext: new(net.Dialer).DialContext},
	} {
		err := do(slotUnder(t, &standing), newFenced(base, standing.Load), http.MethodGet, s.URL, nil)
		if err == nil || !strings.Contains(err.Error(), "cannot be fenced") && !strings.Contains(err.Error(), "nothing can be fenced") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := came.Load(); n != 0 {
		t.Errorf("%d requests have come", n)
	}
}

// TestTransportHints: informational answers come to who asks for them, once, over HTTP/1.1 and HTTP/2.
func TestTransportHints(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style>")
			w.WriteHeader(http.StatusEarlyHints)
		}))
		if s.EnableHTTP2 = secure; secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		var standing atomic.Uint64
		standing.Store(1)
		var hints atomic.Int32
		ctx := httptrace.WithClientTrace(slotUnder(t, &standing), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") == "</style>" {
				hints.Add(1)
			}
			return nil
		}})
		rt := newFenced(s.Client().Transport.(*http.Transport), standing.Load)
		if err := do(ctx, rt, http.MethodGet, s.URL, nil); err != nil || hints.Load() != 1 {
			t.Errorf("%d hints, %v", hints.Load(), err)
		}
		rt.CloseIdleConnections()
		s.Close()
	}
}

// TestTransportResets: of a request that is aborted while it uploads, nothing more is
// sent, also not what the system has of it already. An early answer that is read to its
// end ends it, too.
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
			if _, err := io.Copy(io.Discard, upstream); answer == "" && !errors.Is(err, syscall.ECONNRESET) {
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
		var lease atomic.Uint64
		lease.Store(1)
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
		late := proxy.WithHeld(t.Context(), &proxy.Held{Slot: &validOnce{leased: leased{standing: &lease, under: 1}}})
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
