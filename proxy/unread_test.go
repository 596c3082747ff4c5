package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kgate/kgate/proxy/downstream"
)

// These tests are of clients that do not read what they have asked for.

// writeEndlessly answers until the connection breaks.
func writeEndlessly(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

// dialUnread returns a connection that takes little before it is read.
func (g *gateway) dialUnread() *rawConn {
	// It is small from the beginning: where a window has shrunk, the system drops what does
	// not fit, and the acknowledgements that come with it.
	small := func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
		return errors.Join(err, failed)
	}
	return g.dialBy(&net.Dialer{Control: small})
}

// withFreeRoute has paths under /free/ go to the upstream without a pool.
func withFreeRoute(c *Config) {
	c.Routes = []Route{{Match: Match{PathPrefix: "/free/"}, Upstreams: c.Pools[0].Upstreams}, {Pool: "p"}}
}

// TestHTTP2ClientTakesNothing: a client with all windows open that stops reading its
// connection loses it, with a pool soon after hold.max.
func TestHTTP2ClientTakesNothing(t *testing.T) {
	t.Parallel()
	for path, stall := range map[string]time.Duration{"/": time.Minute, "/free/": 500 * time.Millisecond} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, 1, http.HandlerFunc(writeEndlessly), withFreeRoute, func(c *Config) {
				c.Pools[0].HoldMax = 500 * time.Millisecond
			})
			server := g.listen(downstream.Config{IdleTimeout: 500 * time.Millisecond, StallTimeout: stall})
			c := g.dialUnread()
			c.send(http2.ClientPreface)
			fr := http2.NewFramer(c, c)
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			_ = fr.WriteWindowUpdate(0, 1<<30)
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "GET", path), EndStream: true, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
			if rec := g.records.next(t); !rec.Aborted {
				t.Errorf("record %+v", rec)
			}
			g.sem.await(0, 0)
			if !eventually(func() bool { return server.Connections() == 0 }) {
				t.Error("the connection is still open")
			}
		})
	}
}

func eventually(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// TestSlowClientAlone: a client that does not read informational answers stops nobody
// whose request shares its HTTP/2 connection to the upstream.
func TestSlowClientAlone(t *testing.T) {
	t.Parallel()
	flooded := make(chan struct{})
	g := newGateway(t, 2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hints" {
			return
		}
		w.Header().Set("Link", strings.Repeat("x", 4000))
		for i := 0; i < 4000 && r.Context().Err() == nil; i++ {
			w.WriteHeader(http.StatusEarlyHints)
		}
		close(flooded)
		<-r.Context().Done()
	}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	slow := g.dialUnread()
	slow.send("GET /hints HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case <-flooded:
	case <-time.After(patience):
		t.Fatal("the upstream cannot write its informational answers")
	}
	if got := g.answer("/"); got != "200 " {
		t.Errorf("another client got %q", got)
	}
	_ = slow.Close()
	g.sem.await(0, 0)
}

// TestInformationalUnread: on a route without a pool, a client that does not read
// informational answers is cut off.
func TestInformationalUnread(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", strings.Repeat("x", 4000))
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
		}
	}), withFreeRoute)
	// An upstream that a busy machine does not run for as long counts as one that is silent.
	g.listen(downstream.Config{StallTimeout: 2 * time.Second})
	c := g.dialUnread()
	c.send("GET /free/ HTTP/1.1\r\nHost: h\r\n\r\n")
	g.records.next(t)
	_ = c.SetDeadline(time.Now().Add(patience))
	// What it has not read is dropped, so that the system need not keep it.
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ends with %v", err)
	}
}

// TestPipelineUnread: a client that sends requests and reads no answers loses its
// connection, however small the answers are.
func TestPipelineUnread(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1000))
	}))
	g.listen(downstream.Config{StallTimeout: 200 * time.Millisecond})
	c := g.dialUnread()
	requests := strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1000)
	for {
		if _, err := io.WriteString(c, requests); os.IsTimeout(err) {
			t.Fatal("the connection is still open")
		} else if err != nil {
			break
		}
	}
	g.sem.await(0, 0)
}

// TestContinueUnread: nor does one hold its slot that is told to go on, and does not
// read that.
func TestContinueUnread(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X", strings.Repeat("x", 1000)) // or it takes long to fill the buffers in between
	}), func(c *Config) { c.Pools[0].HoldIdle = 200 * time.Millisecond })
	g.listen(downstream.Config{StallTimeout: 200 * time.Millisecond})
	c := g.dialUnread()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // TCP gets slow when packets find no room
	requests := strings.Repeat("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", 1000)
	var err error
	for err == nil {
		_, err = io.WriteString(c, requests)
	}
	g.sem.await(0, 0)
}

// TestHalfClosedClientStalls: a client that closes its sending side has left, though
// the gateway waits for it to read.
func TestHalfClosedClientStalls(t *testing.T) {
	t.Parallel()
	needDisconnectWatch(t)
	for _, length := range []string{"", fmt.Sprint(1 << 40)} { // copied by the gateway, and inside the kernel
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			writeEndlessly(w, r)
		}))
		c := g.dialUnread()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(300 * time.Millisecond) // until the connection is full
		_ = c.Conn.(socket).CloseWrite()
		g.records.next(t)
		g.sem.await(0, 0)
	}
}

// TestHeaderOfSpliceNotHeldBack: the header and the first bytes of a long answer reach
// the client, though the upstream is slow to send more.
func TestHeaderOfSpliceNotHeldBack(t *testing.T) {
	t.Parallel()
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(1<<20))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(20 * time.Millisecond) // the header alone reaches the gateway
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		up.pass(r)
	}))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := io.ReadFull(c.response().Body, make([]byte, 5)); err != nil {
		t.Error(err)
	}
}

// TestSilentUpstreamOverHTTP2: on a route without a pool the upstream may be silent for
// longer than a client may stall.
func TestSilentUpstreamOverHTTP2(t *testing.T) {
	t.Parallel()
	const stall = 100 * time.Millisecond
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(4 * stall)
		_, _ = io.WriteString(w, "b")
	}), withFreeRoute)
	g.listen(downstream.Config{StallTimeout: stall})
	res, err := h2cClient(t).Get("http://" + g.addr + "/free/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "ab" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}
