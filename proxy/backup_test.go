package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// named serves an upstream that answers with its name.
func named(t *testing.T, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s
}

// served returns the body of an answer of status 200.
func (g *gateway) served() string {
	g.t.Helper()
	answer := g.answer("/")
	body, ok := strings.CutPrefix(answer, "200 ")
	if !ok {
		g.t.Errorf("answered %s", answer)
	}
	return body
}

// TestBackup: backups are used only while all other upstreams are down, and no request
// fails when the last of those goes, or one comes back.
func TestBackup(t *testing.T) {
	for _, checks := range []string{"", "/"} {
		one, two, backup := named(t, "one"), named(t, "two"), named(t, "backup")
		g := newGateway(t, 1, nil, func(c *Config) {
			c.Pools[0].Upstreams = []*url.URL{mustURL(t, one.URL), mustURL(t, two.URL)}
			c.Pools[0].Backup = []*url.URL{mustURL(t, backup.URL)}
			c.Pools[0].Health = Health{Path: checks, Interval: 100 * time.Millisecond}
		})
		expect := func(when string, want ...string) {
			t.Helper()
			seen := make(map[string]bool)
			for range 20 {
				seen[g.served()] = true
			}
			for _, name := range want {
				if !seen[name] {
					t.Errorf("checks %q, %s: %s was not used", checks, when, name)
				}
				delete(seen, name)
			}
			if len(seen) > 0 {
				t.Errorf("checks %q, %s: used %v besides", checks, when, seen)
			}
		}
		expect("all are up", "one", "two")
		one.CloseClientConnections()
		one.Close()
		expect("one is down", "two")
		at := two.Listener.Addr().String()
		two.CloseClientConnections()
		two.Close()
		expect("both are down", "backup")
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "two") }))
		back.Listener = l
		back.Start()
		t.Cleanup(back.Close)
		for began := time.Now(); g.served() != "two"; {
			if time.Since(began) > patience {
				t.Fatalf("checks %q: the upstream that is back gets nothing", checks)
			}
			time.Sleep(time.Millisecond)
		}
		expect("one is back", "two")
	}
}

// TestTCPBackup: the same for TCP connections.
func TestTCPBackup(t *testing.T) {
	up, backup := newTCPUpstream(t, banner), newTCPUpstream(t, func(c socket) { _, _ = io.WriteString(c, "backup") })
	g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].Backup = []*url.URL{backup.url} })
	c := g.dial()
	c.expect("hello\n")
	_ = c.Close()
	if backup.seen() > 0 {
		t.Error("the backup was used")
	}
	_ = up.Close()
	for range 5 {
		c := g.dial()
		c.expect("backup")
		_ = c.Close()
	}
}

// TestUnixUpstream: an upstream may listen on a socket of the machine, and is checked there.
func TestUnixUpstream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	checked := make(chan struct{}, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			checked <- struct{}{}
		}
		_, _ = io.WriteString(w, r.Host+r.URL.Path)
	}))
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	g := newGateway(t, 1, nil, func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{mustURL(t, "unix:"+path)}
		c.Pools[0].Health = Health{Path: "/healthz"}
	})
	if got := g.served(); got != g.addr+"/" {
		t.Errorf("the upstream saw %q", got)
	}
	if rec := g.records.next(t); rec.Upstream != "unix:"+path {
		t.Errorf("record %+v", rec)
	}
	<-checked
}

// TestHostSent: the upstream gets the Host that the pool says.
func TestHostSent(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+" "+r.Header.Get("X-Forwarded-Host"))
	}), func(c *Config) { c.Pools[0].Transport.Host = "files.example.com" })
	if got := g.served(); got != "files.example.com "+g.addr {
		t.Errorf("the upstream saw %q", got)
	}
}
