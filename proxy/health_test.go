package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/upstream"
)

// refusing returns the n-th URL where nobody listens: a port that was free a moment
// ago may be somebody else's by now.
func refusing(n int) *url.URL {
	return &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", n)}
}

// logOf returns a logger, and the lines that it writes.
func logOf() (*slog.Logger, <-chan string) {
	lines := make(chan string, 1024)
	return slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		lines <- string(b)
		return len(b), nil
	}), nil)), lines
}

func awaitLine(t testing.TB, lines <-chan string, text string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line := <-lines:
			if strings.Contains(line, text) {
				return
			}
		case <-timer.C:
			t.Fatalf("nothing is logged about %q", text)
		}
	}
}

// TestPassedOver: failures in a row have an upstream passed over, all others in
// between and after do not; it gets one request per interval until one is
// answered.
func TestPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, second = 0, 1
		ups := []*backend{{configured: "first"}, {configured: "second"}}
		var log bytes.Buffer
		g := &balancer{backends: ups, policy: Health{}.withDefaults(), logger: slog.New(slog.NewTextHandler(&log, nil))}
		// expect picks ten times, and wants so many of them to be the first.
		expect := func(want int) {
			t.Helper()
			got := 0
			for range 10 {
				u := g.pick(nil)
				if u == ups[first] {
					got++
				}
				g.done(u, verdictNone, nil)
			}
			if got != want {
				t.Errorf("the first was picked %d of 10 times, want %d", got, want)
			}
		}
		say := func(i int, verdicts ...verdict) {
			for _, v := range verdicts {
				ups[i].inFlight++
				g.done(ups[i], v, errors.New("refused"))
			}
		}
		const good, failed, none = verdictGood, verdictFailed, verdictNone
		say(first, failed, failed, good, failed, none, failed)
		expect(5)
		say(first, failed)
		expect(0)
		if !strings.Contains(log.String(), "upstream is unhealthy") {
			t.Errorf("logged %q", log.String())
		}
		time.Sleep(5 * time.Second)
		expect(1) // one request finds out
		say(first, failed)
		expect(0)
		say(second, failed, failed, failed) // both: any is as good
		expect(5)
		say(second, good)
		expect(0)
		say(first, good)
		expect(5)
	})
}

// TestWhatIsAFailure: connections that are refused or break are the upstream's
// failures; a slow or bad answer is none, nor is what the client does.
func TestWhatIsAFailure(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for name, tt := range map[string]struct {
		upstream http.HandlerFunc // nil: nobody listens
		send     string
		healthy  bool
	}{
		"refused":      {nil, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"breaks":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"slow":         {silent, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
		"says 500":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
		"broken body":  {silent, "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n", true},
		"client gives": {silent, "GET / HTTP/1.1\r\nHost: h\r\n\r\nleave", true},
	} {
		t.Run(name, func(t *testing.T) {
			in := inVirtualTime
			request, leaves := strings.CutSuffix(tt.send, "leave")
			if leaves { // the kernel tells
				in = func(t *testing.T, test func(*testing.T)) { test(t) }
			}
			in(t, func(t *testing.T) {
				g := newGateway(t, 1, tt.upstream, func(c *Config) {
					c.Pools[0].Transport.ResponseHeaderTimeout = 10 * time.Second
					if tt.upstream == nil {
						c.Pools[0].Upstreams = []*url.URL{refusing(1)}
					}
				})
				for range 3 {
					c := g.dial()
					c.send(request)
					if leaves {
						g.sem.await(1, 0)
						_ = c.Close()
					}
					g.records.next(t)
				}
				if s := g.handler.Upstreams()[0]; s.Healthy != tt.healthy {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestChecks: an upstream that fails its checks gets nothing, and when all do the
// gateway says so at once, without a slot; to who waits, when the turn comes.
func TestChecks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var sick atomic.Bool
		up := newGate()
		logger, lines := logOf()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/base/health" && r.URL.RawQuery == "deep" && r.UserAgent() == "kgate-health":
				if sick.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			case r.URL.Path == "/base/wait":
				up.pass(r)
			}
		}), func(c *Config) {
			c.Pools[0].Upstreams[0].Path = "/base"
			c.Pools[0].Health = Health{Path: "/health?deep", Interval: time.Second, Timeout: patience}
			c.Logger = logger
		})
		first, second := g.dial(), g.dial()
		first.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)
		second.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
		g.sem.await(1, 1)

		sick.Store(true)
		awaitLine(t, lines, "upstream is unhealthy")
		if s := g.handler.Upstreams(); len(s) != 1 || s[0].Healthy || s[0].Pool != "p" || s[0].InFlight != 1 {
			t.Errorf("upstreams %+v", s)
		}
		third := g.dial() // in front of it are one in flight and one in line
		third.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		expectDown := func(c *rawConn) {
			t.Helper()
			res := c.response()
			b, _ := io.ReadAll(res.Body)
			if res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "upstream-down" || res.Header.Get("Retry-After") == "" || !bytes.Contains(b, []byte("health check")) {
				t.Errorf("got %s, header %v, body %s", res.Status, res.Header, b)
			}
		}
		expectRecords := func(down, admitted int) {
			t.Helper()
			for range down + admitted { // a slot is free before its request's record is there: in any order
				switch rec := g.records.next(t); {
				case rec.Outcome == admission.UpstreamDown.Outcome() && rec.Upstream == "":
					down--
				case rec.Outcome == admission.OutcomeAdmitted:
					admitted--
				default:
					t.Errorf("record %+v", rec)
				}
			}
			if down != 0 || admitted != 0 {
				t.Errorf("%d too few were refused, %d admitted", down, admitted)
			}
		}
		expectDown(third)
		expectRecords(1, 0)
		g.sem.await(1, 1)
		close(up.proceed)
		if res := first.response(); res.StatusCode != 200 {
			t.Errorf("status %d", res.StatusCode)
		}
		expectDown(second)
		expectRecords(1, 1)
		g.sem.await(0, 0)

		sick.Store(false)
		awaitLine(t, lines, "upstream is healthy again")
		res := g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

// TestCheckConnections: each check makes a connection of its own, in the way of requests, and
// closes it.
func TestCheckConnections(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, scheme := range []string{"http", "h2c", "https"} {
			var open, opened atomic.Int64
			checks := make(chan string, 1024)
			up := unstarted(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { checks <- r.Proto }))
			up.Config.Protocols = new(http.Protocols)
			up.Config.Protocols.SetHTTP1(true)
			up.Config.Protocols.SetHTTP2(true)
			up.Config.Protocols.SetUnencryptedHTTP2(true)
			up.EnableHTTP2 = true
			up.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					open.Add(1)
					opened.Add(1)
				}
				if s == http.StateClosed || s == http.StateHijacked {
					open.Add(-1)
				}
			}
			if scheme == "https" {
				up.StartTLS()
			} else {
				up.Start()
			}
			t.Cleanup(up.Close)
			g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
				to := mustURL(t, up.URL)
				to.Scheme = scheme
				c.Pools[0].Upstreams = []*url.URL{to}
				c.Pools[0].Transport.TLS = &tls.Config{InsecureSkipVerify: true}
				c.Pools[0].Health = Health{Path: "/", Interval: time.Second, UnhealthyAfter: 1}
			})
			const n = 5
			want := map[string]string{"http": "HTTP/1.1", "h2c": "HTTP/2.0", "https": "HTTP/2.0"}[scheme]
			for range n {
				if got := receive(t, checks); got != want {
					t.Errorf("%s: a check by %s", scheme, got)
				}
			}
			if opened.Load() < n || !g.handler.Upstreams()[0].Healthy {
				t.Errorf("%s: %d connections; %+v", scheme, opened.Load(), g.handler.Upstreams())
			}
			g.handler.Close()
			if !eventually(func() bool { return open.Load() == 0 }) {
				t.Errorf("%s: %d connections are open", scheme, open.Load())
			}
		}
	})
}

// TestChecksAndRequests: an upstream that fails its checks is not healthy because
// it answers requests, and the other way round.
func TestChecksAndRequests(t *testing.T) {
	cfg := Health{Path: "/"}.withDefaults()
	var s health
	for range 3 {
		s.request(verdictGood, cfg)
		s.check(false, cfg)
	}
	if !s.bad {
		t.Error("answered requests hide checks that fail")
	}
	if s.request(verdictGood, cfg); !s.bad {
		t.Error("healthy by a request, in spite of the checks")
	}
	if s.check(true, cfg); !s.bad {
		t.Error("healthy by one check, two are asked for")
	}
	if !s.check(true, cfg) || s.bad {
		t.Error("not healthy after two good checks")
	}
	for range 10 {
		s.request(verdictFailed, cfg)
	}
	if s.bad {
		t.Error("unhealthy by requests, in spite of the checks")
	}
}

// TestSuspected: with checks, requests that fail do not stop a pool, whoever makes
// them fail; but they bring the next check forward.
func TestSuspected(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var sick atomic.Bool
		var checks atomic.Int64
		logger, lines := logOf()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/health":
				checks.Add(1)
				if sick.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			case r.URL.Path == "/hang-up" || sick.Load():
				panic(http.ErrAbortHandler)
			}
		}), func(c *Config) {
			c.Pools[0].Health = Health{Path: "/health", Interval: time.Hour, Timeout: patience}
			c.Logger = logger
		})
		for range 20 {
			if got := g.answer("/hang-up"); !strings.HasPrefix(got, "502") {
				t.Fatalf("got %q", got)
			}
			if got := g.answer("/"); got != "200 " {
				t.Fatalf("an honest request got %q", got)
			}
		}
		if s := g.handler.Upstreams()[0]; !s.Healthy {
			t.Errorf("%+v", s)
		}
		sick.Store(true)
		before := checks.Load()
		began := time.Now()
		for down := false; !down; {
			down = strings.HasPrefix(g.answer("/"), "503")
			if time.Since(began) > patience {
				t.Fatalf("%d checks since it is sick", checks.Load()-before)
			}
			time.Sleep(time.Millisecond)
		}
		awaitLine(t, lines, "upstream is unhealthy")
		t.Logf("down after %v and %d checks, of which the clock brought none", time.Since(began), checks.Load()-before)
		if n := checks.Load(); n > int64(time.Since(began)/checkGap)+25 {
			t.Errorf("%d checks", n)
		}
	})
}

// TestInvalidRequest: a request that cannot be sent is its client's fault.
func TestInvalidRequest(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.handler.current.Load().balancers["p"].backends[0].requests = without{invalidTransport{}}
	for range 5 {
		if got := g.answer("/"); !strings.HasPrefix(got, "400") || !strings.Contains(got, "planted") {
			t.Errorf("got %q", got)
		}
	}
	if s := g.handler.Upstreams()[0]; !s.Healthy {
		t.Errorf("%+v", s)
	}
}

type invalidTransport struct{}

func (invalidTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &upstream.InvalidRequestError{Detail: "planted"}
}

// TestErrorsAreLookedAt: answers of 5xx in a row ask for a check; others between them do not.
func TestErrorsAreLookedAt(t *testing.T) {
	cfg := Health{Path: "/"}.withDefaults()
	var s health
	for i, c := range []struct {
		v    verdict
		asks bool
	}{{verdictError, false}, {verdictError, false}, {verdictGood, false}, {verdictError, false}, {verdictError, false}, {verdictNone, false}, {verdictError, true}, {verdictFailed, true}} {
		if s.doubtful(c.v, cfg) != c.asks {
			t.Errorf("request %d: verdict %d, and asks %t", i, c.v, !c.asks)
		}
	}
	if s = (health{}); s.doubtful(verdictError, Health{UnhealthyAfter: 1}) {
		t.Error("there is no check to ask for")
	}
}
