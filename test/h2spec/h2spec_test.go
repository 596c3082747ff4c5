package h2spec

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/downstream"
)

// TestConformance: whatever net/http's HTTP/2 server does right, the gateway does,
// too, in the clear.
func TestConformance(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "a page that is long enough for tests of flow control")
	})
	plain := run(t, servePlain(t, page), time.Second)
	gateway := serveGateway(t, page)
	ours := run(t, gateway, time.Second)
	if len(plain) < 100 || len(ours) != len(plain) {
		t.Fatalf("%d cases against net/http, %d against the gateway", len(plain), len(ours))
	}
	failed := 0
	var suspects []string
	for name, want := range plain {
		if want.Failed {
			failed++
		} else if ours[name].Failed {
			section, _, _ := strings.Cut(name, " ")
			suspects = append(suspects, section)
		}
	}
	t.Logf("%d cases, of which net/http fails %d", len(plain), failed)
	if len(suspects) == 0 {
		return
	}
	// On a busy machine a second may be too short: what is wrong is so after ten, too.
	for name, got := range run(t, gateway, 10*time.Second, suspects...) {
		if got.Failed {
			t.Errorf("%s: %v", name, got.Error)
		}
	}
}

// run returns the result of each case, or of those in the sections, where an answer
// may take as long as timeout.
func run(t *testing.T, addr *net.TCPAddr, timeout time.Duration, sections ...string) map[string]*spec.TestResult {
	t.Helper()
	cfg := &config.Config{Host: addr.IP.String(), Port: addr.Port, Path: "/", Timeout: timeout, MaxHeaderLen: 4000, Sections: sections}
	quiet(t)
	results := make(map[string]*spec.TestResult)
	for _, g := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		g.Test(cfg)
		collect(results, g)
	}
	return results
}

func collect(results map[string]*spec.TestResult, g *spec.TestGroup) {
	for _, c := range g.Tests {
		if c.Result != nil {
			results[fmt.Sprintf("%s/%d %s", g.ID(), c.Result.Sequence, c.Desc)] = c.Result
		}
	}
	for _, sub := range g.Groups {
		collect(results, sub)
	}
}

// quiet keeps h2spec's account of each case, which it prints, out of the test's
// output.
func quiet(t *testing.T) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := os.Stdout
	os.Stdout = null
	t.Cleanup(func() {
		os.Stdout = out
		_ = null.Close()
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func servePlain(t *testing.T, h http.Handler) *net.TCPAddr {
	t.Helper()
	server := &http.Server{Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	server.Protocols.SetUnencryptedHTTP2(true)
	l := listen(t)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().(*net.TCPAddr)
}

// everybody admits all requests.
type everybody struct{}

func (everybody) Acquire(context.Context, admission.Request) (proxy.Slot, error) { return slot{}, nil }

type slot struct{}

func (slot) Release()                       {}
func (slot) Fence() string                  { return "p/1/1/1" }
func (slot) Valid() bool                    { return true }
func (slot) GrantInfo() admission.GrantInfo { return admission.GrantInfo{} }

func serveGateway(t *testing.T, h http.Handler) *net.TCPAddr {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := proxy.New(proxy.Config{
		Admitter: everybody{},
		Pools:    []proxy.Pool{{Name: "p", Upstreams: []*url.URL{to}, HoldMax: time.Minute, HoldIdle: time.Minute, Fence: true}},
		Routes:   []proxy.Route{{Pool: "p"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := downstream.NewServer(downstream.Config{Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().(*net.TCPAddr)
}
