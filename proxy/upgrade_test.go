package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// TestHalfClose: an upgraded connection can be closed one way, guarded or not.
func TestHalfClose(t *testing.T) {
	g := newGateway(t, 1, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	c.send("last words")
	if err := c.Conn.(socket).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c.br); err != nil || string(b) != "last words" {
		t.Errorf("got %q, %v", b, err)
	}
	g.sem.await(0, 0)
}

// TestUpstreamHalfCloses: the other way round; the client may go on talking.
func TestUpstreamHalfCloses(t *testing.T) {
	heard := make(chan string, 1)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nthat is all")
		_ = brw.Flush()
		_ = conn.(meteredConn).Conn.(socket).CloseWrite()
		b, _ := io.ReadAll(brw)
		heard <- string(b)
	}))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	if b, err := io.ReadAll(c.br); err != nil || string(b) != "that is all" {
		t.Errorf("got %q, %v", b, err)
	}
	c.send("last words")
	_ = c.Close()
	if got := <-heard; got != "last words" {
		t.Errorf("the upstream heard %q", got)
	}
}

// echoUpgrade answers an upgrade with an echo, and with a length, which has no meaning there.
func echoUpgrade(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\nContent-Length: 5\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(conn, brw)
	}
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// TestUpgrade: an upgraded connection holds its slot until it is closed.
func TestUpgrade(t *testing.T) {
	g := newGateway(t, 1, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	res := c.response()
	if res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" || res.Header.Get("Server-Timing") == "" || res.Header.Get("Content-Length") != "" {
		t.Fatalf("got %v %v", res.Status, res.Header)
	}
	for range 3 {
		c.send("ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c.br, buf); err != nil || string(buf) != "ping" {
			t.Fatalf("echo %q, %v", buf, err)
		}
		if g.sem.now() != 1 {
			t.Fatal("the slot was released while the connection is open")
		}
	}
	_ = c.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Status != 101 || rec.Outcome != admission.OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}

// TestUpgradeHalfClosed: a client that has closed its sending side gets the rest of the answer,
// also where its request had a body, and in a program's own server.
func TestUpgradeHalfClosed(t *testing.T) {
	t.Parallel()
	needDisconnectWatch(t)
	const late = 300 * time.Millisecond // longer than it takes to notice that a client has left
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(io.Discard, brw)
		time.Sleep(late)
		_, _ = io.WriteString(conn, "late")
	}))
	foreign := unstarted(t, g.handler)
	foreign.Config.ConnContext = downstream.ConnContext
	foreign.Start()
	defer foreign.Close()
	for name, addr := range map[string]string{"kgate's server": g.addr, "a program's server": foreign.Listener.Addr().String()} {
		for _, body := range []string{"", "{}"} {
			g.addr = addr
			c := g.dial()
			c.send(fmt.Sprintf("POST /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			if res := c.response(); res.StatusCode != 101 {
				t.Fatalf("%s, body %q: got %v", name, body, res.Status)
			}
			_ = c.Conn.(socket).CloseWrite()
			if rest, err := io.ReadAll(c.br); string(rest) != "late" || err != nil {
				t.Errorf("%s, body %q: read %q, %v", name, body, rest, err)
			}
			_ = c.Close()
		}
	}
}

// TestUpgradeRefused: an upstream that answers with another protocol, or not
// at all with one, costs no slot.
func TestUpgradeRefused(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			_, _ = io.WriteString(w, "no")
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_ = brw.Flush()
		_, _ = io.Copy(io.Discard, brw) // until the gateway closes it
	}))
	c := g.dial()
	c.send(upgradeRequest)
	if res := c.response(); res.StatusCode != 502 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	c = g.dial()
	c.send(strings.Replace(upgradeRequest, "/ws", "/plain", 1))
	if res := c.response(); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
}

// TestUpgradesSpoilNoUpstream: an upstream that is well stays in use, whatever upgrades a
// client asks it for.
func TestUpgradesSpoilNoUpstream(t *testing.T) {
	const line = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: "
	for name, tt := range map[string]struct {
		scheme, request string
		want            int
	}{
		"a list":                  {"http", line + "echo, other\r\n\r\n", 101},
		"a list in two lines":     {"http", line + "other\r\nUpgrade: Echo/1\r\n\r\n", 101},
		"another protocol":        {"http", line + "other, echoes\r\n\r\n", 502},
		"another version":         {"http", line + "odd/1\r\n\r\n", 502},
		"before the body":         {"http", line + "echo\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 502},
		"h2c":                     {"h2c", line + "echo\r\n\r\n", 200},
		"h2c, with a body":        {"h2c", strings.Replace(line, "GET", "POST", 1) + "echo\r\nContent-Length: 2\r\n\r\nhi", 200},
		"HTTP/2 over TLS":         {"https", line + "echo\r\n\r\n", 101},
		"HTTP/2 only over TLS":    {"https", line + "echo\r\n\r\n", 502},
		"none, and it goes on so": {"http", "GET /ws HTTP/1.1\r\nHost: h\r\nWanted: echo\r\n\r\n", 502},
	} {
		t.Run(name, func(t *testing.T) {
			one := unstarted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade")+r.Header.Get("Wanted") == "" {
					_, _ = io.WriteString(w, "one")
					return
				}
				if tt.scheme == "https" && tt.want == 502 {
					panic(http.ErrAbortHandler) // as if it knew no HTTP/1.1
				}
				conn, brw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				agreed := "echo"
				if strings.HasPrefix(r.Header.Get("Upgrade"), "odd") {
					agreed = "odd/2"
				}
				_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + agreed + "\r\n\r\n")
				_ = brw.Flush()
				_, _ = io.Copy(conn, brw)
			}))
			one.Config.Protocols = new(http.Protocols)
			one.Config.Protocols.SetHTTP1(true)
			one.Config.Protocols.SetUnencryptedHTTP2(true)
			if tt.scheme == "https" {
				one.Config.Protocols = nil
				one.EnableHTTP2 = true
				one.StartTLS()
			} else {
				one.Start()
			}
			defer one.Close()
			g := newGateway(t, 1, nil, func(c *Config) {
				u := mustURL(t, one.URL)
				u.Scheme = tt.scheme
				c.Pools[0].Upstreams = []*url.URL{u}
				c.Pools[0].Backup = []*url.URL{mustURL(t, named(t, "backup").URL)}
				c.Pools[0].Health = Health{UnhealthyAfter: 1}
				c.Pools[0].Transport.TLS = &tls.Config{InsecureSkipVerify: true}
			})
			c := g.dial()
			c.send(tt.request)
			if res := c.response(); res.StatusCode != tt.want {
				t.Errorf("status %d, want %d", res.StatusCode, tt.want)
			}
			_ = c.Close()
			g.sem.await(0, 0)
			if by := g.served(); by != "one" {
				t.Errorf("the next request went to %s", by)
			}
		})
	}
}
