package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
)

// serveSecure serves each TLS connection with each. The server speaks the protocols that it
// says, according to what the client offers.
func serveSecure(t *testing.T, speaks func(offered []string) []string, each func(*tls.Conn)) *server {
	own := httptest.NewTLSServer(nil) // for its certificate
	own.Close()
	return serve(t, func(c net.Conn, _ *bufio.Reader) {
		secure := tls.Server(c, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: own.TLS.Certificates, NextProtos: speaks(hello.SupportedProtos)}, nil
		}})
		if secure.Handshake() == nil {
			each(secure)
		}
	})
}

// protocols serves HTTP/2 with empty answers, HTTP/1.1 with the other.
func protocols(http1 func(net.Conn, *bufio.Reader)) func(*tls.Conn) {
	return func(c *tls.Conn) {
		br := bufio.NewReader(c)
		if c.ConnectionState().NegotiatedProtocol == "h2" {
			frames(c, br, answerOK)
		} else {
			http1(c, br)
		}
	}
}

// insecure takes every certificate.
func insecure(c *Config) { c.Scheme, c.TLS = "https", &tls.Config{InsecureSkipVerify: true} }

// TestUpgradeBesideHTTP2: an upgrade has a connection of its own, over HTTP/1.1, where other
// requests share one. It ends with the standing.
func TestUpgradeBesideHTTP2(t *testing.T) {
	var standing atomic.Uint64
	standing.Store(1)
	both := func([]string) []string { return []string{"h2", "http/1.1"} }
	s := serveSecure(t, both, protocols(func(c net.Conn, br *bufio.Reader) {
		for {
			req, err := http.ReadRequest(br)
			switch {
			case err != nil:
				return
			case req.Header.Get("Upgrade") == "echo":
				_, _ = io.WriteString(c, "HTTP/1.1 101 S\r\n\r\n")
				_, _ = io.Copy(c, br)
				return
			}
			_, _ = io.WriteString(c, short)
		}
	}))
	c := newClient(t, s.addr, insecure, func(c *Config) { c.Standing = standing.Load })
	expect := func(protocol, want string, conns int64) {
		t.Helper()
		req := request(t, "GET", nil)
		if protocol != "" {
			req = request(t, "GET", nil, "Connection", "Upgrade", "Upgrade", protocol)
		}
		got, err := get(t, c, req)
		if err != nil || got != want || s.conns.Load() != conns {
			t.Errorf("upgrade %q: %q, %v over %d connections, want %q over %d", protocol, got, err, s.conns.Load(), want, conns)
		}
	}
	expect("other", "ok", 2) // the first one finds out
	expect("", "", 2)
	expect("other", "ok", 2)
	var tunnels []*Tunnel
	for range 2 {
		res, err := c.RoundTrip(request(t, "GET", nil, "Connection", "Upgrade", "Upgrade", "echo"), new(plain))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		tunnel, ok := res.Body.(*Tunnel)
		if !ok {
			t.Fatalf("got %s", res.Status)
		}
		tunnels = append(tunnels, tunnel)
	}
	expect("", "", 3)
	b := make([]byte, 4)
	for _, tunnel := range tunnels {
		if _, err := tunnel.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(tunnel, b); err != nil || string(b) != "ping" {
			t.Errorf("read %q, %v", b, err)
		}
	}
	standing.Store(2)
	for _, tunnel := range tunnels {
		if _, err := tunnel.Write([]byte("late")); !errors.Is(err, ErrLapsed) {
			t.Errorf("a late write: %v", err)
		}
	}
	c.EndLapsed()
	if c.Open() != 0 {
		t.Errorf("%d connections are open", c.Open())
	}
}

// TestUpgradeOnlyHTTP2: a server without HTTP/1.1 is told apart from one that fails, whatever it
// makes of clients that ask for that.
func TestUpgradeOnlyHTTP2(t *testing.T) {
	for name, tt := range map[string]struct {
		without string // HTTP/2 among the offered
		http1   string
	}{
		"refuses":     {"other", ""},
		"hangs up":    {"h2", ""},
		"says HTTP/2": {"h2", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			speaks := func(offered []string) []string {
				if slices.Contains(offered, "h2") {
					return []string{"h2"}
				}
				return []string{tt.without}
			}
			s := serveSecure(t, speaks, protocols(func(c net.Conn, br *bufio.Reader) {
				_, _ = http.ReadRequest(br)
				_, _ = io.WriteString(c, tt.http1)
			}))
			c := newClient(t, s.addr, insecure)
			for range 2 {
				var failed *UpgradeError
				if _, err := get(t, c, request(t, "GET", nil, "Connection", "Upgrade", "Upgrade", "echo")); !errors.As(err, &failed) {
					t.Errorf("an upgrade: %v", err)
				}
			}
			if got, err := get(t, c, request(t, "GET", nil)); got != "" || err != nil || c.Open() != 1 {
				t.Errorf("a request: %q, %v, %d connections are open", got, err, c.Open())
			}
		})
	}
}
