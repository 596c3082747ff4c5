package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kgate/kgate/proxy/downstream"
)

// These tests are of clients that do not read what they have asked for.

// stall is how long one may do so in virtual time.
const stall = 20 * time.Second

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
	const little = 4096
	if memoryOf(g.t) != nil {
		c := g.dial()
		_ = c.Conn.(socket).SetReadBuffer(little)
		return c
	}
	// It is small from the beginning: where a window has shrunk, the system drops what does
	// not fit, and the acknowledgements that come with it.
	small := func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, little)
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
	const limit = 10 * time.Second
	for path, ends := range map[string]time.Duration{"/": limit + lastWord, "/free/": stall + lastWord, "pings": 2 * stall} {
		t.Run(path, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 1, http.HandlerFunc(writeEndlessly), withFreeRoute, func(c *Config) {
					c.Pools[0].HoldMax = limit
				})
				server := g.listen(downstream.Config{StallTimeout: stall})
				c := g.dialUnread()
				c.send(http2.ClientPreface)
				fr := http2.NewFramer(c, c)
				_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
				_ = fr.WriteWindowUpdate(0, 1<<30)
				if path == "pings" {
					for range 1000 {
						_ = fr.WritePing(false, [8]byte{})
					}
					endAfter(t, server, ends) // net/http's write that fails has written something, so it tries once more
					return
				}
				if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "GET", path), EndStream: true, EndHeaders: true}); err != nil {
					t.Fatal(err)
				}
				endAfter(t, server, ends)
				if rec := g.records.next(t); !rec.Aborted {
					t.Errorf("record %+v", rec)
				}
			})
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
	inVirtualTime(t, func(t *testing.T) {
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
	})
}

// TestInformationalUnread: on a route without a pool, a client that does not read
// informational answers is cut off.
func TestInformationalUnread(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 4000))
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}), withFreeRoute)
		g.listen(downstream.Config{StallTimeout: stall})
		c := g.dialUnread()
		c.send("GET /free/ HTTP/1.1\r\nHost: h\r\n\r\n")
		began := time.Now()
		g.records.next(t)
		if took := time.Since(began); took != stall+lastWord {
			t.Errorf("cut off after %v", took)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		// What it has not read is dropped, so that the system need not keep it.
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ends with %v", err)
		}
	})
}

// TestPipelineUnread: a client that sends requests and reads no answers loses its
// connection, however small the answers are.
func TestPipelineUnread(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1000))
		}))
		g.listen(downstream.Config{StallTimeout: stall})
		c := g.dialUnread()
		requests := strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1000)
		began, err := time.Now(), error(nil)
		for err == nil {
			_, err = io.WriteString(c, requests)
		}
		if took := time.Since(began); took != stall {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestContinueUnread: nor does one hold its slot that is told to go on, and does not
// read that.
func TestContinueUnread(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("X", strings.Repeat("x", 1000)) // or it takes long to fill the buffers in between
		}), func(c *Config) { c.Pools[0].HoldIdle = stall })
		g.listen(downstream.Config{StallTimeout: stall})
		c := g.dialUnread()
		began := time.Now()
		requests := strings.Repeat("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", 1000)
		var err error
		for err == nil {
			_, err = io.WriteString(c, requests)
		}
		if took := time.Since(began); took != stall {
			t.Errorf("%v after %v", err, took)
		}
	})
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
	inVirtualTime(t, func(t *testing.T) {
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
	})
}
