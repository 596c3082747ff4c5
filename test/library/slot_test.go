package library

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate"
)

// TestLoss: a node that is cut off gives up its slots within a lease, and its holders
// know.
func TestLoss(t *testing.T) {
	nodes := cluster(t, 3, 3)
	slot := acquire(t, nodes[0])
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	entered, causes := make(chan struct{}, 2), make(chan error, 2)
	addr := serve(t, nodes[0], func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		if kgate.FromContext(r.Context()).Valid() {
			t.Error("the slot of a node without a lease is valid")
		}
		causes <- context.Cause(r.Context())
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a request in the handler", entered)
	upgraded := dial(t, serve(t, nodes[0], func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		entered <- struct{}{}
		_, _ = conn.Read(make([]byte, 1)) // until the loss closes it
	}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a hijacked connection", entered)
	began := time.Now()
	for _, n := range nodes[1:] {
		_ = n.Close() // without a word: there is no majority any more
	}
	soon(t, "the slot is lost", slot.Lost())
	if cause := soon(t, "the handler's context ends", causes); !errors.Is(cause, kgate.ErrLost) {
		t.Errorf("the handler's context has ended by %v", cause)
	}
	if _, err := upgraded.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the hijacked connection: %v", err)
	}
	took := time.Since(began)
	soon(t, "the context ends", ctx.Done())
	if cause := context.Cause(ctx); !errors.Is(cause, kgate.ErrLost) || slot.Valid() {
		t.Errorf("the context has ended by %v, valid %v", cause, slot.Valid())
	}
	// The lease counts from its last renewal, which was before.
	if took > lease+lease/2 {
		t.Errorf("noticed after %v, the lease is %v", took, lease)
	}
	t.Logf("lost after %v of a lease of %v", took, lease)
	var refused *kgate.Refused
	if _, err := nodes[0].Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrIsolated) || !errors.As(err, &refused) || refused.Pool != "p" {
		t.Errorf("a slot without a lease: %v", err)
	}
}

// TestTransport: of requests that Middleware has admitted and of slots of Acquire.
func TestTransport(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	fences := make(chan string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fences <- r.Header.Get("Kgate-Fence") }))
	defer upstream.Close()
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) {
		want := kgate.FromContext(ctx).Fence()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if got := <-fences; got != want || !strings.HasPrefix(got, "p/") {
			t.Errorf("fence %q, want %q", got, want)
		}
	}
	n.Middleware("p")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { get(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	get(ctx)
	slot.Release()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if slot.Valid() || !errors.Is(err, kgate.ErrLost) {
		t.Errorf("after its release the slot is valid: %v; got %v", slot.Valid(), err)
	}
}
