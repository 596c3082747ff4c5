package proxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// safeBuffer takes a log.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *safeBuffer) into(c *Config) { c.Logger = slog.New(slog.NewTextHandler(b, nil)) }

// overTLS puts an HTTPS upstream, with HTTP/2 if h2, in the place of the pool's.
func overTLS(t *testing.T, h2 bool, handler http.Handler) func(*Config) {
	s := unstarted(t, handler)
	s.EnableHTTP2 = h2
	s.StartTLS()
	t.Cleanup(s.Close)
	return func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{mustURL(t, s.URL)}
		c.Pools[0].Transport.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig
		if !h2 {
			c.Pools[0].Transport.TLS.NextProtos = []string{"http/1.1"}
		}
	}
}

// openConns returns how many connections to its upstream the pool keeps.
func (g *gateway) openConns() int {
	return g.handler.current.Load().balancers["p"].backends[0].client.Open()
}

// awaitClosed waits until it keeps none.
func (g *gateway) awaitClosed() {
	g.t.Helper()
	if !eventually(func() bool { return g.openConns() == 0 }) {
		g.t.Errorf("%d connections are open", g.openConns())
	}
}

func awaitGone(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the upstream was not told")
	}
}

// TestLostBeforeHeader: over each protocol the upstream's side is closed before
// the one who took the slot away goes on, and the client learns why.
func TestLostBeforeHeader(t *testing.T) {
	for _, proto := range []string{"http", "h2c", "https", "https+h2"} {
		t.Run(proto, func(t *testing.T) {
			up := newGate()
			gone := make(chan struct{})
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if want := map[bool]int{true: 2, false: 1}[strings.Contains(proto, "h2")]; r.ProtoMajor != want {
					t.Errorf("the upstream was reached over %s", r.Proto)
				}
				up.pass(r)
				close(gone)
			})
			var log safeBuffer
			g := newGateway(t, 1, handler, log.into, func(c *Config) {
				switch proto {
				case "h2c":
					c.Pools[0].Upstreams[0].Scheme = proto
				case "https", "https+h2":
					overTLS(t, proto == "https+h2", handler)(c)
				}
			})
			c := g.dial()
			c.send("GET /x?secret HTTP/1.1\r\nHost: h\r\n\r\n")
			up.awaitEntered(t)
			g.sem.lapse()
			g.awaitClosed()
			res := c.response()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "isolated" || res.Header.Get("Retry-After") != "1" ||
				!strings.Contains(string(body), "not known") {
				t.Errorf("got %v %v %s", res.Status, res.Header, body)
			}
			awaitGone(t, gone)
			g.sem.await(0, 0)
			if rec := g.records.next(t); rec.Outcome != admission.Isolated.Outcome() || rec.Status != 503 || rec.Aborted || rec.UpstreamStatus != 0 {
				t.Errorf("record %+v", rec)
			}
			if s := log.String(); strings.Count(s, `msg="request broken off" cause="the slot was lost" pool=p`) != 1 || strings.Contains(s, "secret") {
				t.Errorf("log: %s", s)
			}
		})
	}
}

// TestLostBeforeUse: a slot that is lost before anything was sent reaches no
// upstream at all; whether its owner says so or not.
func TestLostBeforeUse(t *testing.T) {
	for _, told := range []bool{true, false} {
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached the upstream") }),
			func(c *Config) {
				sem := c.Admitter.(*semaphore)
				c.Observer = onAdmitted{c.Observer, func() {
					if told {
						sem.last().lose()
					}
					sem.last().invalid.Store(true)
				}}
			})
		res := g.do(g.request("POST", "/"))
		_ = res.Body.Close()
		if res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "isolated" {
			t.Errorf("told %v: got %v %v", told, res.Status, res.Header)
		}
		g.sem.await(0, 0)
		if n := g.metered.bytes.Load(); n != 0 {
			t.Errorf("told %v: the upstream got %d bytes", told, n)
		}
	}
}

// onAdmitted acts between admission and the first byte.
type onAdmitted struct {
	Observer
	act func()
}

func (o onAdmitted) Admitted(*Record) { o.act() }

// lapseUntold ends the standing and all slots, and closes the connections, as the first request does
// that hears of it. The request under test has not heard.
func (g *gateway) lapseUntold() {
	g.sem.standing.Store(0)
	g.sem.last().invalid.Store(true)
	g.handler.current.Load().balancers["p"].backends[0].client.EndLapsed()
}

// TestLostInDownload: the client sees a broken answer, not a short one, be it
// reading or stuck. Nobody blames the upstream for it.
func TestLostInDownload(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("told, reads %v", reads), func(t *testing.T) { testLostInDownload(t, reads, true) })
	}
	t.Run("not told", func(t *testing.T) { testLostInDownload(t, true, false) })
}

func testLostInDownload(t *testing.T, reads, told bool) {
	entered, gone := make(chan struct{}), make(chan struct{})
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		close(entered)
		for !reads { // until the gateway, stuck too, closes the connection
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
		<-r.Context().Done()
	}))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-entered
	res := c.response()
	if told {
		g.sem.lapse()
	} else {
		g.lapseUntold()
	}
	g.sem.await(0, 0)
	awaitGone(t, gone)
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("the answer looks whole")
	}
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted || rec.Status != 200 {
		t.Errorf("record %+v", rec)
	}
}

// TestLostInUpload: the client is answered although it has stopped sending.
func TestLostInUpload(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		got, gone := make(chan struct{}), make(chan struct{})
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer close(gone)
			_, _ = io.ReadFull(r.Body, make([]byte, 5))
			close(got)
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("the upstream takes the body for whole")
			}
		}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
		c := g.dial()
		c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhello")
		<-got
		g.sem.lapse()
		if res := c.response(); res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "isolated" || !res.Close {
			t.Errorf("%s: got %v %v, close %v", scheme, res.Status, res.Header, res.Close)
		}
		awaitGone(t, gone)
		g.sem.await(0, 0)
		if rec := g.records.next(t); rec.Outcome != admission.Isolated.Outcome() || rec.Status != 503 {
			t.Errorf("%s: record %+v", scheme, rec)
		}
	}
}

// TestLostInStreamedUpload: the same over HTTP/2, where the client's connection is
// kept.
func TestLostInStreamedUpload(t *testing.T) {
	entered := make(chan struct{})
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	client := h2cClient(t)
	body, w := io.Pipe()
	defer w.Close()
	go func() {
		<-entered
		g.sem.lapse()
	}()
	res, err := client.Post(g.url, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "isolated" {
		t.Errorf("got %v %v", res.Status, res.Header)
	}
	g.sem.await(0, 0)
}

// TestLostUpgrade: both sides are closed, be the client reading or stuck.
func TestLostUpgrade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, test := range []struct{ reads, told bool }{{true, true}, {false, true}, {true, false}} {
			reads := test.reads
			gone := make(chan struct{})
			echo := echoUpgrade(t)
			g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(gone)
				echo(w, r)
			}))
			c := g.dial()
			c.send(upgradeRequest)
			c.response()
			if reads {
				c.send("ping")
				if _, err := io.ReadFull(c.br, make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
			} else {
				_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // fills every buffer on the way
				_, _ = io.Copy(c, endless{})
			}
			if test.told {
				g.sem.lapse()
			} else {
				g.lapseUntold()
			}
			g.awaitClosed()
			awaitGone(t, gone)
			g.sem.await(0, 0)
			_, _ = io.Copy(io.Discard, c.br) // ends, or fails at its deadline
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted || rec.Status != 101 || rec.Hold > patience/2 {
				t.Errorf("%+v: record %+v", test, rec)
			}
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
