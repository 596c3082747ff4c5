package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/upstream"
)

// paced is a requester that answers without a network, in the test's time:
// the header after some time, then a byte now and then.
type paced struct {
	header, every time.Duration
	bytes         int
	hints         int // early ones, each after the time header
}

func (p paced) Do(req *upstream.Request, caller upstream.Caller) (*upstream.Response, error) {
	for range p.hints {
		if err := pause(req.Context(), p.header); err != nil {
			return nil, err
		}
		if err := caller.Informational(http.StatusEarlyHints, nil); err != nil {
			return nil, err
		}
	}
	if err := pause(req.Context(), p.header); err != nil {
		return nil, err
	}
	return &upstream.Response{Response: &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Body: io.NopCloser(&pacedBody{p, req.Context()}),
	}}, nil
}

type pacedBody struct {
	paced
	ctx context.Context
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.bytes == 0 {
		return 0, io.EOF
	}
	b.bytes--
	if err := pause(b.ctx, b.every); err != nil {
		return 0, err
	}
	return copy(p, "x"), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cutFunc is a cutter.
type cutFunc func(*abortCause)

func (f cutFunc) cut(cause *abortCause) { f(cause) }

// TestHoldLimits: each limit to the instant, before and after the header.
func TestHoldLimits(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		max, idle time.Duration
		upstream  paced
		hold      time.Duration
		status    int
		aborted   bool
		cause     string
	}{
		"no bound":                {0, 0, paced{header: day, every: day, bytes: 3}, 4 * day, 200, false, ""},
		"max, silent":             {time.Minute, 0, paced{header: time.Hour}, time.Minute, 504, false, "hold.max is reached"},
		"max, busy":               {time.Minute, 20 * time.Second, paced{header: time.Second, every: 9 * time.Second, bytes: 100}, time.Minute, 200, true, "hold.max is reached"},
		"idle, silent":            {time.Hour, 20 * time.Second, paced{header: time.Hour}, 20 * time.Second, 504, false, "hold.idle is reached"},
		"idle, after the header":  {time.Hour, 20 * time.Second, paced{header: 19 * time.Second, every: 21 * time.Second, bytes: 3}, 39 * time.Second, 200, true, "hold.idle is reached"},
		"idle, never":             {0, 20 * time.Second, paced{header: 19 * time.Second, every: 19 * time.Second, bytes: 100}, 101 * 19 * time.Second, 200, false, ""},
		"idle, early hints":       {0, 20 * time.Second, paced{header: 19 * time.Second, hints: 4}, 95 * time.Second, 200, false, ""},
		"both, in time":           {time.Minute, 20 * time.Second, paced{header: 9 * time.Second, every: 10 * time.Second, bytes: 5}, 59 * time.Second, 200, false, ""},
		"idle longer than max":    {time.Minute, time.Hour, paced{header: time.Second, every: 2 * time.Minute, bytes: 1}, time.Minute, 200, true, "hold.max is reached"},
		"idle only, after a byte": {0, 20 * time.Second, paced{every: 30 * time.Second, bytes: 2}, 20 * time.Second, 200, true, "hold.idle is reached"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log safeBuffer
				sem, records := newSemaphore(t, 1), newRecorder()
				cfg := Config{
					Admitter: sem, Observer: records, Routes: []Route{{Pool: "p"}},
					Pools: []Pool{{Name: "p", Upstreams: []*url.URL{{Scheme: "http", Host: "h"}}, HoldMax: tt.max, HoldIdle: tt.idle}},
				}
				log.into(&cfg)
				h, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				h.current.Load().balancers["p"].backends[0].requests = tt.upstream
				w := httptest.NewRecorder()
				serve(h, w, httptest.NewRequest("GET", "/", nil))
				rec := records.next(t)
				if rec.Hold != tt.hold || rec.Status != tt.status || rec.Aborted != tt.aborted {
					t.Errorf("record %+v", rec)
				}
				if want := map[int]admission.Outcome{200: admission.OutcomeAdmitted, 504: admission.OutcomeUpstreamError}[tt.status]; rec.Outcome != want {
					t.Errorf("outcome %v, want %v", rec.Outcome, want)
				}
				if s := log.String(); tt.cause == "" && s != "" || !strings.Contains(s, tt.cause) {
					t.Errorf("log %q", s)
				}
			})
		})
	}
}

// serve calls h as net/http's server does.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if err, ok := recover().(error); ok && !errors.Is(err, http.ErrAbortHandler) {
			panic(err)
		}
	}()
	ctx := context.WithValue(r.Context(), http.ServerContextKey, new(http.Server))
	h.ServeHTTP(w, r.WithContext(ctx))
}

// TestHoldIdleFrees: a client that stops sending, or reading, or says nothing
// over an upgraded connection or a stream, loses its slot.
func TestHoldIdleFrees(t *testing.T) {
	const idle = 20 * time.Second
	for name, client := range map[string]func(*testing.T, *gateway, *rawConn){
		"upload": func(t *testing.T, _ *gateway, c *rawConn) {
			c.send("PUT /swallow HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhello")
			if res := c.response(); res.StatusCode != 504 || !res.Close {
				t.Errorf("got %v, close %v", res.Status, res.Close)
			}
		},
		"download": func(t *testing.T, _ *gateway, c *rawConn) { c.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n") },
		"upgrade": func(t *testing.T, _ *gateway, c *rawConn) {
			c.send(upgradeRequest)
			res := c.response()
			if b, err := c.br.ReadByte(); err == nil && res.StatusCode == 101 {
				t.Errorf("the upgraded connection says %q", b)
			}
		},
		"stream": func(t *testing.T, g *gateway, _ *rawConn) {
			body, w := io.Pipe()
			defer w.Close()
			res, err := h2cClient(t).Post(g.url, "application/grpc", body)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err == nil && res.StatusCode == 200 {
				t.Error("the stream looks whole")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.Handle("/ws", echoUpgrade(t))
				mux.HandleFunc("/", echoStream)
				mux.HandleFunc("/swallow", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, endless{}) })
				g := newGateway(t, 1, mux, func(c *Config) {
					c.Pools[0].HoldIdle = idle
					if name == "stream" {
						c.Pools[0].Upstreams[0].Scheme = "h2c"
					}
				})
				client(t, g, g.dial())
				rec := g.records.next(t)
				if rec.Hold != idle || rec.Aborted == (rec.Status == 504) || name == "upload" && rec.Aborted {
					t.Errorf("record %+v", rec)
				}
				g.sem.await(0, 0)
				if n := g.openConns(); n > 0 && name != "stream" {
					t.Errorf("%d connections to the upstream are open", n)
				}
			})
		})
	}
}

// TestHoldMoves: a byte in either direction puts hold.idle off, and only that.
func TestHoldMoves(t *testing.T) {
	one := make([]byte, 1)
	for name, move := range map[string]func(*exchange) error{
		"upload": func(ex *exchange) error {
			ex.request = &http1.Request{Body: io.NopCloser(endless{})}
			_, err := (&requestBody{ex: ex}).Read(one)
			return err
		},
		"download": func(ex *exchange) error { ex.hold.move(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cut := make(chan *abortCause, 1)
				ex := &exchange{visit: visit{hold: hold{slot: openSlot{}, idle: 20 * time.Second}}}
				h := &ex.hold
				h.begin(cutFunc(func(cause *abortCause) { cut <- cause }), new(alarms))
				defer h.end()
				began := time.Now()
				for range 100 {
					<-time.After(19 * time.Second)
					if err := move(ex); err != nil {
						t.Fatal(err)
					}
				}
				if cause := <-cut; cause != errHoldIdle || time.Since(began) != 1920*time.Second {
					t.Errorf("%v after %v", cause, time.Since(began))
				}
				if err := h.check(); !errors.Is(err, errHoldIdle) {
					t.Errorf("after the end: %v", err)
				}
			})
		})
	}
}

// TestHoldEnds: nothing is cut once the hold has ended, and nothing twice.
func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ended := range []bool{true, false} {
			cuts := 0
			sem := newSemaphore(t, 1)
			slot, err := sem.Acquire(t.Context(), admission.Request{Pool: "p"})
			if err != nil {
				t.Fatal(err)
			}
			h := &hold{slot: slot, max: time.Second, idle: time.Second}
			h.begin(cutFunc(func(*abortCause) { cuts++ }), new(alarms))
			if ended {
				h.end()
			}
			sem.last().lose()
			<-time.After(time.Hour)
			_ = h.check()
			if want := map[bool]int{true: 0, false: 1}[ended]; cuts != want {
				t.Errorf("ended %v: cut %d times", ended, cuts)
			}
			h.end()
			slot.Release()
		}
	})
}

// TestSlowDownload: a download that is read steadily is not idle, though the
// connection has taken far more than was read, and takes no more for long. Once
// nothing is read, it is.
func TestSlowDownload(t *testing.T) {
	t.Parallel()
	needDisconnectWatch(t) // what needs the kernel, too
	const idle, perSecond = 2 * time.Second, 300 << 10
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, endless{}) }),
		func(c *Config) { c.Pools[0].HoldIdle = idle })
	c := g.dial()
	// With less, packets that the system drops would decide how fast it is.
	if err := c.Conn.(socket).SetReadBuffer(128 << 10); err != nil {
		t.Fatal(err)
	}
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	buf, read := make([]byte, 4<<10), 0
	for began := time.Now(); time.Since(began) < 3*idle; time.Sleep(5 * time.Millisecond) {
		// A machine that is late makes the pieces larger, and nothing slower.
		for read < int(time.Since(began).Seconds()*perSecond) && time.Since(began) < 3*idle {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatalf("broken off after %v: %v", time.Since(began), err)
			}
			read += n
		}
	}
	if n := g.sem.now(); n != 1 {
		t.Fatalf("%d slots are held", n)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
}

// TestLostBeforeItBegins: a slot that is lost before the request begins to use it breaks the
// request off all the same.
func TestLostBeforeItBegins(t *testing.T) {
	sem := newSemaphore(t, 1)
	h := new(hold)
	slot, err := sem.Acquire(t.Context(), admission.Request{Holder: h})
	if err != nil {
		t.Fatal(err)
	}
	sem.last().lose()
	for h.aborted() == nil { // it is told on a goroutine of its own
		time.Sleep(time.Millisecond)
	}
	h.limit(t.Context(), slot, &Pool{})
	var cause *abortCause
	h.begin(cutFunc(func(c *abortCause) { cause = c }), new(alarms))
	if cause != errLost || h.check() == nil {
		t.Errorf("cut by %v", cause)
	}
	h.end()
	slot.Release()
}

// TestLossWaitsForNobody: who tells a request that its slot is lost does not wait for what
// that breaks off.
func TestLossWaitsForNobody(t *testing.T) {
	sem := newSemaphore(t, 1)
	h := new(hold)
	slot, err := sem.Acquire(t.Context(), admission.Request{Holder: h})
	if err != nil {
		t.Fatal(err)
	}
	told, cut, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.limit(t.Context(), slot, &Pool{})
	h.begin(cutFunc(func(*abortCause) { close(cut); <-closed }), new(alarms))
	go func() { defer close(told); sem.last().lose() }()
	for _, done := range []chan struct{}{cut, told} {
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("it waits")
		}
	}
	close(closed)
	h.end()
	slot.Release()
}
