package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// shared is an Admitter of a pool whose upstreams have a k of their own: each slot is for the
// first one that is not barred.
type shared struct {
	t         testing.TB
	upstreams []string
	ticket    bool // slots cannot be given back

	mu      sync.Mutex
	barred  []string
	changed chan struct{} // closed and replaced when others are barred
	held    map[*sharedSlot]bool
	again   int
	bars    int // how often some were
}

type sharedSlot struct {
	*shared
	upstream string
}

func (s *shared) Acquire(ctx context.Context, _ admission.Request) (Slot, error) {
	slot := &sharedSlot{shared: s}
	if err := slot.wait(ctx, time.Minute); err != nil {
		return nil, err
	}
	if s.ticket {
		return struct {
			Slot
			noAgain
		}{slot, noAgain(slot.upstream)}, nil
	}
	return slot, nil
}

// noAgain is what a ticket's slot says.
type noAgain string

func (u noAgain) Upstream() string { return string(u) }

func (s *sharedSlot) wait(ctx context.Context, limit time.Duration) error {
	timeout := time.After(limit)
	for {
		s.mu.Lock()
		changed := s.changed
		i := slices.IndexFunc(s.upstreams, func(u string) bool { return !slices.Contains(s.barred, u) })
		if i >= 0 {
			s.upstream, s.held[s] = s.upstreams[i], true
		}
		s.mu.Unlock()
		if i >= 0 {
			return nil
		}
		select {
		case <-changed:
		case <-timeout:
			return &admission.Refusal{Reason: admission.Timeout}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *sharedSlot) Again(ctx context.Context, limit time.Duration) error {
	s.mu.Lock()
	if !slices.Contains(s.barred, s.upstream) {
		s.t.Errorf("%s is not barred as the request comes back", s.upstream)
	}
	s.again++
	delete(s.held, s)
	s.mu.Unlock()
	return s.wait(ctx, limit)
}

func (s *sharedSlot) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, s)
}

func (s *sharedSlot) Upstream() string                 { return s.upstream }
func (*sharedSlot) Fence() string                      { return "p/1/1/1" }
func (*sharedSlot) Valid() bool                        { return true }
func (*sharedSlot) GrantInfo() (g admission.GrantInfo) { return g }

func (s *shared) bar(_ string, upstreams []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barred = upstreams; len(upstreams) > 0 {
		s.bars++
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitBarred waits until these are barred, and no others.
func (s *shared) awaitBarred(want ...string) {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		now, changed := s.barred, s.changed
		s.mu.Unlock()
		if slices.Equal(now, want) || len(now)+len(want) == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("%v are barred, want %v", now, want)
		}
	}
}

// newShared serves a pool whose slots are for these upstreams.
func newShared(t testing.TB, upstreams []string, change ...func(*Config)) (*gateway, *shared) {
	t.Helper()
	s := &shared{t: t, upstreams: upstreams, changed: make(chan struct{}), held: make(map[*sharedSlot]bool)}
	t.Cleanup(func() {
		if len(s.held) > 0 {
			t.Errorf("%d slots are not released", len(s.held))
		}
	})
	g := newGateway(t, 1, http.NotFoundHandler(), append([]func(*Config){func(cfg *Config) {
		cfg.Admitter, cfg.Bar, cfg.Standing = s, s.bar, nil
		cfg.Pools[0].Health.Interval = 100 * time.Millisecond
	}}, change...)...)
	t.Cleanup(g.handler.Close)
	g.handler.Agree("p", upstreams)
	return g, s
}

// freeHosts counts the addresses of this machine that freeAddr has used.
var freeHosts atomic.Int32

// freeAddr returns an address at which nobody listens. On Linux nobody else will: it has a host's
// address of its own, so no server of another test gets its port.
func freeAddr(t testing.TB) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.77.%d.%d", os.Getpid()%256, freeHosts.Add(1)%256)
	}
	l := listenAt(t, host+":0")
	defer l.Close()
	return l.Addr().String()
}

// serveAt serves as an upstream that says its name, and what it was sent.
func serveAt(t testing.TB, addr, name string) (stop func()) {
	t.Helper()
	l := listenAt(t, addr)
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, name+" "+string(body))
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	stop = sync.OnceFunc(func() { _ = s.Close(); <-done })
	t.Cleanup(stop)
	return stop
}

// post sends a request with a body, and returns what came back.
func (g *gateway) post(body string) (status int, said string) {
	g.t.Helper()
	req := g.request(http.MethodPost, "/")
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	res := g.do(req)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Error(err)
	}
	return res.StatusCode, string(text)
}

// TestUnreachable: a request whose upstream cannot be reached goes to another one, as a whole, with
// another slot. The upstream is barred as long as it is away, with checks and without.
func TestUnreachable(t *testing.T) {
	for name, path := range map[string]string{"without checks": "", "with checks": "/"} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				first, second := freeAddr(t), freeAddr(t)
				serveAt(t, second, "second")
				g, s := newShared(t, []string{"http://" + first, "http://" + second}, func(cfg *Config) {
					cfg.Pools[0].Health.Path = path
				})
				if status, said := g.post("all of it"); status != http.StatusOK || said != "second all of it" {
					t.Errorf("%d %q", status, said)
				}
				s.awaitBarred("http://" + first)
				rec := g.records.next(t)
				if rec.Outcome != admission.OutcomeAdmitted || rec.Upstream != second {
					t.Errorf("%+v", rec)
				}
				up := g.handler.Upstreams()
				if up[0].Healthy || up[0].Why == nil || !up[1].Healthy {
					t.Errorf("%+v", up)
				}
				stop := serveAt(t, first, "first")
				s.awaitBarred()
				if status, said := g.post("x"); status != http.StatusOK || said != "first x" {
					t.Errorf("%d %q", status, said)
				}
				stop() // and again
				if status, said := g.post("y"); status != http.StatusOK || said != "second y" {
					t.Errorf("%d %q", status, said)
				}
			})
		})
	}
}

// TestUnreachableAgain: an upstream that ends a kept connection, and takes no new one to send the
// request again, is barred at once.
func TestUnreachableAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		if _, err := http.ReadRequest(r); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if _, err := http.ReadRequest(r); err != nil {
			t.Error(err)
		}
		_ = l.Close()
	}()
	first := "http://" + l.Addr().String()
	g, s := newShared(t, []string{first})
	for _, want := range []int{http.StatusOK, http.StatusBadGateway} {
		res := g.do(g.request(http.MethodGet, "/"))
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d, want %d", res.StatusCode, want)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.barred, []string{first}) {
		t.Errorf("%v are barred", s.barred)
	}
}

// TestUnreachableNoMore: what becomes of a request that finds no other upstream.
func TestUnreachableNoMore(t *testing.T) {
	dead := "http://" + freeAddr(t)
	t.Run("all are down", func(t *testing.T) {
		g, s := newShared(t, []string{dead}, func(cfg *Config) { cfg.Pools[0].QueueTimeout = 50 * time.Millisecond })
		res := g.do(g.request(http.MethodGet, "/"))
		_ = res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Kgate-Refusal") != "timeout" {
			t.Errorf("%d %v", res.StatusCode, res.Header)
		}
		s.awaitBarred(dead)
		res = g.do(g.request(http.MethodGet, "/")) // now it is known
		_ = res.Body.Close()
		if res.Header.Get("Kgate-Refusal") != "upstream-down" {
			t.Errorf("%d %v", res.StatusCode, res.Header)
		}
	})
	t.Run("a ticket's slot", func(t *testing.T) {
		g, s := newShared(t, []string{dead})
		s.ticket = true
		res := g.do(g.request(http.MethodGet, "/"))
		_ = res.Body.Close()
		if res.Header.Get("Kgate-Refusal") != "upstream-down" || s.again > 0 {
			t.Errorf("%d %v", res.StatusCode, res.Header)
		}
	})
	t.Run("the client leaves", func(t *testing.T) {
		g, s := newShared(t, []string{dead})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if res, err := g.client.Do(g.request(http.MethodGet, "/").WithContext(ctx)); err == nil {
			_ = res.Body.Close()
		}
		if rec := g.records.next(t); rec.Outcome != admission.OutcomeClientGone {
			t.Errorf("%+v", rec)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.held) > 0 {
			t.Error("it has a slot")
		}
	})
}

// TestWaitAgainIsNoHold: the time that a request waits again does not count as its hold.
func TestWaitAgainIsNoHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		addr := freeAddr(t)
		g, s := newShared(t, []string{"http://" + addr}, func(cfg *Config) {
			cfg.Pools[0].HoldIdle, cfg.Pools[0].HoldMax = 5*time.Second, 10*time.Second
		})
		time.AfterFunc(20*time.Second, func() { serveAt(t, addr, "late") })
		if status, said := g.post("x"); status != http.StatusOK || said != "late x" {
			t.Errorf("%d %q", status, said)
		}
		s.awaitBarred()
	})
}

// TestFailsEachRequest: an upstream that breaks off one request after the other is barred, and
// tried again.
func TestFailsEachRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		l := listen(t)
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
		}()
		second := freeAddr(t)
		serveAt(t, second, "second")
		first := "http://" + l.Addr().String()
		g, s := newShared(t, []string{first, "http://" + second}, func(cfg *Config) { cfg.Pools[0].Health.Interval = time.Second })
		get := func() int {
			res := g.do(g.request(http.MethodGet, "/"))
			defer res.Body.Close()
			return res.StatusCode
		}
		for range 3 {
			if status := get(); status != http.StatusBadGateway {
				t.Error(status) // it may have been seen there
			}
		}
		if status, said := g.post("x"); status != http.StatusOK || said != "second x" {
			t.Errorf("%d %q", status, said)
		}
		s.awaitBarred() // it takes connections
		if status := get(); status != http.StatusBadGateway {
			t.Error(status)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.bars != 2 { // one failure is enough now: it was barred before the answer
			t.Errorf("barred %d times", s.bars)
		}
	})
}

// TestAgreedUpstreams: what the gateways have agreed on counts, not the configuration, over
// reloads, and a slot may be for one that the handler has not heard of.
func TestAgreedUpstreams(t *testing.T) {
	addrs := []string{freeAddr(t), freeAddr(t)}
	for i, addr := range addrs {
		serveAt(t, addr, []string{"first", "second"}[i])
	}
	g, s := newShared(t, []string{"http://" + addrs[0]})
	urls := func() (all []string) {
		for _, u := range g.handler.Upstreams() {
			all = append(all, u.URL)
		}
		return all
	}
	s.upstreams = []string{"http://" + addrs[1]} // the view is on its way to the handler
	if status, said := g.post("x"); status != http.StatusOK || said != "second x" {
		t.Errorf("%d %q", status, said)
	}
	if all := urls(); !slices.Equal(all, []string{"http://" + addrs[0], "http://" + addrs[1]}) {
		t.Error(all)
	}
	g.handler.Agree("p", []string{"http://" + addrs[1]})
	cfg := g.handler.current.Load().cfg
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if all := urls(); !slices.Equal(all, []string{"http://" + addrs[1]}) {
		t.Error(all)
	}
	if status, said := g.post("x"); status != http.StatusOK || said != "second x" {
		t.Errorf("%d %q", status, said)
	}
	g.handler.Agree("p", nil)
	if all := urls(); !slices.Equal(all, []string{g.upstream.URL}) {
		t.Error(all)
	}
}

// TestUnreachableTCP: the same for a TCP connection.
func TestUnreachableTCP(t *testing.T) {
	second := newTCPUpstream(t, func(c socket) { _, _ = io.WriteString(c, "hello") })
	first := "tcp://" + freeAddr(t)
	s := &shared{t: t, upstreams: []string{first, second.url.String()}, changed: make(chan struct{}), held: make(map[*sharedSlot]bool)}
	g := newTCPGateway(t, 1, []*url.URL{mustURL(t, first)}, func(cfg *Config) {
		cfg.Admitter, cfg.Bar, cfg.Standing = s, s.bar, nil
		cfg.Pools[0].Health.Interval = 50 * time.Millisecond
	})
	t.Cleanup(g.handler.Close)
	g.handler.Agree("p", s.upstreams)
	conn := g.dial()
	if text, err := io.ReadAll(conn.br); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	s.awaitBarred(first)
}

// TestAwayOverChanges: an upstream that is away is found again, though the list has changed
// meanwhile.
func TestAwayOverChanges(t *testing.T) {
	first, second := freeAddr(t), freeAddr(t)
	serveAt(t, second, "second")
	g, s := newShared(t, []string{"http://" + first, "http://" + second})
	if status, _ := g.post("x"); status != http.StatusOK {
		t.Error(status)
	}
	s.awaitBarred("http://" + first)
	g.handler.Agree("p", []string{"http://" + first, "http://" + second, "http://" + freeAddr(t)})
	serveAt(t, first, "first")
	s.awaitBarred()
}

// TestSuspect: an upstream that another gateway could not reach is looked at here, without a
// request, and one that takes connections and ends them counts as away.
func TestSuspect(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		l := listen(t)
		var ends atomic.Bool
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if ends.Load() {
					_ = c.Close()
				}
			}
		}()
		up := "http://" + l.Addr().String()
		g, s := newShared(t, []string{up, "http://" + freeAddr(t)})
		look := func() { g.handler.Suspect("p", up) }
		look()
		time.Sleep(20 * time.Second)
		s.awaitBarred()
		ends.Store(true)
		look()
		s.awaitBarred(up)
		ends.Store(false)
		s.awaitBarred()
		_ = l.Close()
		look()
		s.awaitBarred(up)
	})
}

// TestBarredOverReload: what can be reached after a reload is not barred any longer.
func TestBarredOverReload(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		reloads []func(*Config)
	}{
		"no checks":         {"/404", []func(*Config){func(cfg *Config) { cfg.Pools[0].Health.Path = "" }}},
		"another transport": {"", []func(*Config){func(cfg *Config) { cfg.Pools[0].Transport.DialTimeout += time.Second }}},
		"out and in again":  {"", []func(*Config){func(cfg *Config) { cfg.Pools, cfg.Routes = nil, nil }, func(*Config) {}}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := freeAddr(t)
			up := "http://" + addr
			g, s := newShared(t, []string{up}, func(cfg *Config) { cfg.Pools[0].Health.Path = c.path })
			g.handler.Suspect("p", up)
			s.awaitBarred(up)
			serveAt(t, addr, "up")
			before := g.handler.current.Load().cfg
			for _, change := range c.reloads {
				cfg := before
				cfg.Pools = slices.Clone(cfg.Pools)
				change(&cfg)
				if err := g.handler.Reload(cfg); err != nil {
					t.Fatal(err)
				}
				g.handler.Agree("p", s.upstreams)
			}
			s.awaitBarred()
		})
	}
}
