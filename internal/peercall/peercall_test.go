package peercall

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
)

// TestReached: over TLS, a gateway that gives no good answer is known to be there; without TLS,
// or if another one is there or nobody, it is not.
func TestReached(t *testing.T) {
	ring, err := clusterkey.Parse([]byte(clusterkey.New()))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := ring.TLS("gw-2")
	if err != nil {
		t.Fatal(err)
	}
	conf.InsecureSkipVerify = true
	serve := func(secure bool) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/none" {
				panic(http.ErrAbortHandler)
			}
			http.Error(w, "not the leader", http.StatusMisdirectedRequest)
		}))
		if secure {
			server.Listener = tls.NewListener(server.Listener, conf)
		}
		server.Start()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	secure, plain := serve(true), serve(false)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	for _, c := range []struct {
		name, addr, path string
		tls, reached     bool
	}{
		{"gw-2", secure, "/", true, true},
		{"gw-2", secure, "/", true, true}, // the same connection
		{"gw-2", secure, "/none", true, true},
		{"gw-1", secure, "/", true, false},
		{"gw-2", nobody.Addr().String(), "/", true, false},
		{"gw-2", plain, "/", false, false},
		{"gw-2", plain, "/none", false, false},
	} {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if c.tls {
				return (&tls.Dialer{Config: conf}).DialContext(ctx, network, addr)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}}
		err := JSON(t.Context(), client, http.MethodGet, To{c.name, c.addr}, c.path, nil, nil, 100)
		client.CloseIdleConnections()
		if err == nil || errors.As(err, new(Reached)) != c.reached {
			t.Errorf("%s at %s%s, TLS %t: %v, want it reached: %t", c.name, c.addr, c.path, c.tls, err, c.reached)
		}
	}
}

// TestOnlyTheNamedIsAsked: gossip can lead a call for one gateway to another. That one
// neither sees what is asked nor answers, also over a connection that is open already.
func TestOnlyTheNamedIsAsked(t *testing.T) {
	ring, err := clusterkey.Parse([]byte(clusterkey.New()))
	if err != nil {
		t.Fatal(err)
	}
	as := func(name string) *tls.Config {
		c, err := ring.TLS(name)
		if err != nil {
			t.Fatal(err)
		}
		c.ClientAuth, c.ClientCAs, c.InsecureSkipVerify = tls.RequireAndVerifyClientCert, c.RootCAs, true
		return c
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", as("gw-3"))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"term": 7}`))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	dialer := tls.Dialer{Config: as("gw-2")}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, addr)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	for i, name := range []string{"gw-1", "gw-3", "gw-1", "gw-3", "gw-3", "gw-1"} {
		var answer struct{ Term int }
		before := asked.Load()
		err := JSON(t.Context(), client, http.MethodPost, To{name, l.Addr().String()}, "/v1/term", "a secret", &answer, 100)
		switch right := name == "gw-3"; {
		case right && (err != nil || answer.Term != 7):
			t.Errorf("call %d: %v", i, err)
		case !right && (err == nil || !strings.Contains(err.Error(), "it is for gw-3, not for gw-1") || answer.Term != 0 || asked.Load() != before):
			t.Errorf("call %d for %s: answer %d, asked %d times, error %v", i, name, answer.Term, asked.Load()-before, err)
		}
	}
}
