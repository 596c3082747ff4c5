package library

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/test/forged"
)

// TestForged: a client says nothing in kgate's name, in a header nor in a trailer, in
// whatever spelling. The upstream judges.
func TestForged(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	came := make(chan *http.Request, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- r
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Trailer = r.In.Trailer // as Caddy passes them on
	}
	fenced := &httputil.ReverseProxy{Rewrite: rewrite, Transport: n.Transport(nil)}
	plain := new(http.Transport)
	defer plain.CloseIdleConnections()
	for name, c := range map[string]struct {
		handler http.Handler
		fences  int
	}{
		"Middleware, any transport": {n.Middleware("p")(&httputil.ReverseProxy{Rewrite: rewrite, Transport: plain}), 0},
		"Middleware, Transport":     {n.Middleware("p")(fenced), 1},
		"Acquire, Transport": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			slot := acquire(t, n)
			defer slot.Release()
			ctx, cancel := slot.Context(r.Context())
			defer cancel()
			fenced.ServeHTTP(w, r.WithContext(ctx))
		}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(c.handler)
			s.Config.ConnContext = kgate.ConnContext
			s.Start()
			defer s.Close()
			res, err := http.ReadResponse(bufio.NewReader(dial(t, s.Listener.Addr().String(), forged.Request("/"))), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			got := soon(t, "the request at the upstream", came)
			said := forged.Fields(got.Header)
			if len(said) != c.fences || strings.Contains(strings.Join(said, " "), forged.Fence) {
				t.Errorf("the upstream reads %q, want %d fences of ours", said, c.fences)
			}
			if said := forged.Fields(got.Trailer); len(said) > 0 {
				t.Errorf("the upstream reads the trailers %q", said)
			}
			if got.Header.Get("Test-Kept") != "1" || got.Trailer.Get("Test-Kept") != "1" {
				t.Errorf("the client's own fields are lost: %v, %v", got.Header, got.Trailer)
			}
		})
	}
}

// TestNoOtherHTTP: a client that asks to go on in another kind of HTTP is served as if it had
// not, since any number of requests could pass behind the one with the slot. An upstream
// that would agree to any protocol judges.
func TestNoOtherHTTP(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	came := make(chan http.Header, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r.Header
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	plain := new(http.Transport)
	defer plain.CloseIdleConnections()
	fenced := httputil.NewSingleHostReverseProxy(to)
	fenced.Transport = n.Transport(nil)
	other := httputil.NewSingleHostReverseProxy(to)
	other.Transport = plain
	for name, handler := range map[string]http.Handler{
		"Middleware, any transport": n.Middleware("p")(other),
		"Acquire, Transport": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			slot := acquire(t, n)
			defer slot.Release()
			ctx, cancel := slot.Context(r.Context())
			defer cancel()
			fenced.ServeHTTP(w, r.WithContext(ctx))
		}),
	} {
		s := httptest.NewServer(handler)
		defer s.Close()
		for upgrade, want := range map[string]int{"websocket": 101, "h2c": 200, "H2C": 200, "TLS/1.2": 200, "HTTP/2.0": 200, "websocket, h2c": 200} {
			conn := dial(t, s.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: "+upgrade+"\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			got := soon(t, "the request at the upstream", came)
			if res.StatusCode != want || want == 200 && len(got["Upgrade"])+len(got["Http2-Settings"]) > 0 {
				t.Errorf("%s, Upgrade: %s: status %d, want %d; came with %v", name, upgrade, res.StatusCode, want, got)
			}
		}
	}
}

// TestSentOnce: no field of a client has a POST sent again when the upstream has ended a kept
// connection without an answer. The upstream counts.
func TestSentOnce(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	keys := make(chan string, 10)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			keys <- r.Header.Get("Idempotency-Key") + r.Header.Get("X-Idempotency-Key")
			panic(http.ErrAbortHandler)
		}
	}))
	defer upstream.Close()
	client := &http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		slot := acquire(t, n)
		ctx, cancel := slot.Context(t.Context())
		for _, method := range []string{http.MethodGet, http.MethodPost} { // the first makes the connection
			r, err := http.NewRequestWithContext(ctx, method, upstream.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(name, "a")
			res, err := client.Do(r)
			if (err == nil) != (method == http.MethodGet) {
				t.Errorf("%s, %s: %v", name, method, err)
			}
			if err == nil {
				_ = res.Body.Close()
			}
		}
		cancel()
		slot.Release()
		if got := len(keys); got != 1 {
			t.Errorf("%s: the POST came %d times", name, got)
		}
		if got := soon(t, "the POST", keys); got != "a" {
			t.Errorf("%s came as %q", name, got)
		}
		for len(keys) > 0 {
			<-keys
		}
	}
}
