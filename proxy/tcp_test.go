package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// tcpUpstream serves each of its connections by a function and counts them.
type tcpUpstream struct {
	net.Listener
	url *url.URL

	mu    sync.Mutex
	conns []socket
	total int
}

func newTCPUpstream(t testing.TB, serve func(socket)) *tcpUpstream {
	t.Helper()
	l := listen(t)
	u := &tcpUpstream{Listener: l, url: mustURL(t, "tcp://"+l.Addr().String())}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conn := c.(socket)
			u.mu.Lock()
			u.conns, u.total = append(u.conns, conn), u.total+1
			u.mu.Unlock()
			wg.Go(func() { serve(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		u.mu.Lock()
		for _, c := range u.conns {
			_ = c.Close()
		}
		u.mu.Unlock()
		wg.Wait()
	})
	return u
}

func (u *tcpUpstream) seen() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total
}

// banner greets and then says what it hears.
func banner(c socket) {
	_, _ = io.WriteString(c, "hello\n")
	_, _ = io.Copy(c, c)
}

// newTCPGateway returns a gateway whose clients are led to the upstreams by TCP.
func newTCPGateway(t testing.TB, k int, ups []*url.URL, change ...func(*Config)) *gateway {
	t.Helper()
	g := &gateway{t: t, sem: newSemaphore(t, k), records: newRecorder()}
	cfg := Config{
		Admitter: g.sem, Standing: g.sem.standing.Load, Observer: g.records,
		Pools: []Pool{{Name: "p", Upstreams: ups}}, TCP: []TCP{{Listener: ":873", Pool: "p"}},
	}
	for _, f := range change {
		f(&cfg)
	}
	g.serve(cfg)
	g.serveTCP(g.server)
	return g
}

// serveTCP has g.dial reach a TCP listener of a server.
func (g *gateway) serveTCP(s *downstream.Server) {
	g.t.Helper()
	l := listen(g.t)
	g.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.ServeTCP(l, ":873") }()
	g.t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != nil {
			g.t.Error(err)
		}
	})
}

func (c *rawConn) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.br, got); err != nil || string(got) != want {
		c.t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// expectReset: the connection ends, and not in order.
func (c *rawConn) expectReset() {
	c.t.Helper()
	if got, err := io.ReadAll(c.br); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("read %q, %v; want a reset", got, err)
	}
}

// expectRefused: a connection is reset, whether its client says something or not.
func (g *gateway) expectRefused(said string) {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err == nil { // else the reset has come already
		_ = c.SetDeadline(time.Now().Add(patience))
		_, write := io.WriteString(c, said) // or learns of it
		_, err = io.ReadAll(c)
		err = errors.Join(write, err)
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		g.t.Errorf("%v, want a reset", err)
	}
}

// receive returns what comes over a channel soon.
func receive[T any](t testing.TB, from chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("the upstream's connection has not ended")
	}
	return got
}

// TestTCPWaits: a connection waits, accepted and silent, before the upstream is dialled,
// and what its client has said meanwhile is not lost.
func TestTCPWaits(t *testing.T) {
	up := newTCPUpstream(t, banner)
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	first := g.dial()
	first.expect("hello\n")
	second := g.dial()
	said := strings.Repeat("said early ", 10_000)
	second.send(said)
	g.sem.await(1, 1)
	if n := up.seen(); n != 1 {
		t.Errorf("the upstream has had %d connections", n)
	}
	first.send("ping")
	first.expect("ping")
	_ = first.Close()
	second.expect("hello\n" + said)
	rec := g.records.next(t)
	if rec.Pool != "p" || rec.Outcome != admission.OutcomeAdmitted || rec.Status != 0 || rec.Bytes != 10 || rec.RequestBytes != 4 ||
		rec.Upstream != up.url.Host || rec.Hold <= 0 || rec.FirstByte <= 0 || rec.NewConns != 1 || rec.Aborted {
		t.Errorf("record %+v", rec)
	}
	_ = second.Close()
	g.sem.await(0, 0)
}

// TestTCPHTTPOneLine: requests and connections of a pool share its slots and its line.
func TestTCPHTTPOneLine(t *testing.T) {
	up := newTCPUpstream(t, banner)
	web := startHandler(t, echoRequest)
	g := newTCPGateway(t, 1, []*url.URL{up.url, web}, func(c *Config) { c.Routes = []Route{{Pool: "p"}} })
	c := g.dial()
	c.expect("hello\n")
	answered := make(chan int, 1)
	go func() {
		res, err := g.client.Get(g.url)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	g.sem.await(1, 1)
	last := g.dial()
	g.sem.await(1, 2)
	_ = c.Close()
	if status := <-answered; status != 200 {
		t.Errorf("status %d", status)
	}
	last.expect("hello\n")
	_ = last.Close()
	if n := len(g.handler.Upstreams()); n != 2 {
		t.Errorf("%d upstreams are known", n)
	}
}

// TestTCPClientLeavesLine: a client that leaves while it waits leaves the line soon,
// whatever it has said, and the upstream hears nothing of it.
func TestTCPClientLeavesLine(t *testing.T) {
	needDisconnectWatch(t)
	for _, said := range []string{"", "something", strings.Repeat("x", 100_000)} {
		for _, how := range []string{"closes", "closes its side", "resets"} {
			up := newTCPUpstream(t, banner)
			g := newTCPGateway(t, 1, []*url.URL{up.url})
			first := g.dial()
			first.expect("hello\n")
			second := g.dial()
			second.send(said)
			g.sem.await(1, 1)
			began := time.Now()
			second.leave(how)
			g.sem.await(1, 0)
			t.Logf("%d bytes, %s: noticed after %v", len(said), how, time.Since(began))
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeClientGone || rec.Wait <= 0 || rec.Hold != 0 {
				t.Errorf("record %+v", rec)
			}
			_ = first.Close()
			g.sem.await(0, 0)
			if up.seen() != 1 {
				t.Error("the upstream was dialled for a client that had left")
			}
		}
	}
}

// TestTCPSaidAll: where a slot is free, a client that closes its sending side at once is
// served.
func TestTCPSaidAll(t *testing.T) {
	up := newTCPUpstream(t, banner)
	g := newTCPGateway(t, 100, []*url.URL{up.url}) // the slot before may be on its way back
	for range 50 {
		c := g.dial()
		c.send("all")
		c.leave("closes its side")
		if got, err := io.ReadAll(c.br); string(got) != "hello\nall" || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
		_ = c.Close()
	}
}

// TestTCPHalfClose: each side may end alone.
func TestTCPHalfClose(t *testing.T) {
	heard := make(chan string, 1)
	up := newTCPUpstream(t, func(c socket) {
		_, _ = io.WriteString(c, "that is all")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	if got, err := io.ReadAll(c.br); string(got) != "that is all" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	c.send("still here")
	_ = c.Close()
	if got := receive(t, heard); got != "still here" {
		t.Errorf("the upstream heard %q", got)
	}
	if rec := g.records.next(t); rec.Aborted || rec.Outcome != admission.OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}

// TestTCPSilentAfterTheEnd: a client that keeps its connection after the upstream has
// ended does not keep the slot.
func TestTCPSilentAfterTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newTCPUpstream(t, func(c socket) { _, _ = io.WriteString(c, "bye") })
		g := newTCPGateway(t, 1, []*url.URL{up.url})
		c := g.dial()
		c.expect("bye")
		g.sem.await(0, 0)
		if rec := g.records.next(t); rec.Aborted || rec.Hold != endTime {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestTCPRefused: whoever is not admitted gets a reset, at once.
func TestTCPRefused(t *testing.T) {
	up := newTCPUpstream(t, banner)
	for _, reason := range []admission.Reason{admission.QueueFull, admission.ClientLimit, admission.Isolated, admission.Draining} {
		for _, said := range []string{"", "something"} {
			g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) {
				c.Admitter.(*semaphore).refusal = &admission.Refusal{Reason: reason}
			})
			g.expectRefused(said)
			if rec := g.records.next(t); rec.Outcome != reason.Outcome() {
				t.Errorf("record %+v", rec)
			}
		}
	}
	g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].QueueTimeout = 10 * time.Millisecond })
	g.dial().expect("hello\n")
	g.dial().expectReset()
	if rec := g.records.next(t); rec.Outcome != admission.Timeout.Outcome() {
		t.Errorf("record %+v", rec)
	}
	if n := up.seen(); n != 1 {
		t.Errorf("the upstream has had %d connections", n)
	}
}

// TestTCPSlotLost: when the slot is lost both connections are reset, and nothing more is
// sent.
func TestTCPSlotLost(t *testing.T) {
	for _, how := range []string{"slot", "standing"} {
		ended := make(chan error, 1)
		up := newTCPUpstream(t, func(c socket) {
			_, err := io.Copy(c, c)
			ended <- err
		})
		g := newTCPGateway(t, 1, []*url.URL{up.url})
		c := g.dial()
		c.send("x")
		c.expect("x")
		if how == "slot" {
			g.sem.last().lose()
		} else {
			g.sem.lapse()
		}
		if open := g.handler.current.Load().tcpPools["p"].backends[0].client.Open; !eventually(func() bool { return open() == 0 }) {
			t.Errorf("%s: %d connections are open", how, open())
		}
		c.expectReset()
		if err := receive(t, ended); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the upstream saw %v", how, err)
		}
		if rec := g.records.next(t); !rec.Aborted {
			t.Errorf("%s: record %+v", how, rec)
		}
	}
}

// TestTCPAsleep: a gateway that has slept past its lease sends nothing of what came
// meanwhile, though nobody has told it yet.
func TestTCPAsleep(t *testing.T) {
	var heard bytes.Buffer
	ended := make(chan struct{})
	up := newTCPUpstream(t, func(c socket) {
		_, _ = io.Copy(io.MultiWriter(&heard, c), c)
		close(ended)
	})
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	c.send("before")
	c.expect("before")
	g.sem.standing.Store(0) // and nobody is told
	c.send("after")
	c.expectReset()
	receive(t, ended)
	if heard.String() != "before" {
		t.Errorf("the upstream heard %q", heard.String())
	}
}

// TestTCPHold: a connection has its slot no longer than the pool allows, nor idle.
func TestTCPHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newTCPUpstream(t, banner)
		for name, bound := range map[string]func(*Config){
			errHoldMax.cause:  func(c *Config) { c.Pools[0].HoldMax = 20 * time.Second },
			errHoldIdle.cause: func(c *Config) { c.Pools[0].HoldIdle = 20 * time.Second },
		} {
			g := newTCPGateway(t, 1, []*url.URL{up.url}, bound)
			c := g.dial()
			c.expect("hello\n")
			c.expectReset()
			g.sem.await(0, 0)
			if rec := g.records.next(t); !rec.Aborted || rec.Hold != 20*time.Second {
				t.Errorf("%s: record %+v", name, rec)
			}
		}
	})
}

// TestTCPBusyIsNotIdle: what moves in either direction counts.
func TestTCPBusyIsNotIdle(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newTCPUpstream(t, func(c socket) { _, _ = io.Copy(io.Discard, c) })
		const idle = 10 * time.Second
		g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].HoldIdle = idle })
		c := g.dial()
		for range 2 {
			c.send("x")
			time.Sleep(idle - 1)
		}
		_ = c.Close()
		if rec := g.records.next(t); rec.Aborted {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestTCPBothWays: large streams in both directions at once arrive as they were sent,
// over what the kernel copies and over what it does not.
func TestTCPBothWays(t *testing.T) {
	up := newTCPUpstream(t, func(c socket) { _, _ = io.Copy(c, c) })
	for _, spoken := range []bool{false, true} {
		g := newTCPGateway(t, 1, []*url.URL{up.url})
		if spoken {
			g.listenTCP(downstream.Config{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		}
		sent := make([]byte, 8<<20)
		_, _ = rand.Read(sent)
		c := g.dial()
		if spoken {
			c.send("PROXY TCP4 192.0.2.7 192.0.2.1 1234 873\r\n")
		}
		go func() {
			_, _ = c.Write(sent)
			_ = c.Conn.(socket).CloseWrite()
		}()
		got, err := io.ReadAll(c.br)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("PROXY %v: %d bytes came back, %v", spoken, len(got), err)
		}
		if rec := g.records.next(t); rec.Bytes != int64(len(sent)) || rec.RequestBytes != int64(len(sent)) || rec.Aborted {
			t.Errorf("record %+v", rec)
		}
	}
}

// listenTCP has a second server serve the gateway's handler.
func (g *gateway) listenTCP(cfg downstream.Config) {
	g.t.Helper()
	cfg.Handler = g.handler
	s, err := downstream.NewServer(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.serveTCP(s)
}

// TestTCPNextUpstream: a connection that one upstream does not take goes to the next.
func TestTCPNextUpstream(t *testing.T) {
	up := newTCPUpstream(t, banner)
	gone := newTCPUpstream(t, banner)
	_ = gone.Close()
	g := newTCPGateway(t, 1, []*url.URL{gone.url, up.url})
	for range 4 {
		c := g.dial()
		c.expect("hello\n")
		_ = c.Close()
		if rec := g.records.next(t); rec.Upstream != up.url.Host || rec.Outcome != admission.OutcomeAdmitted || rec.DialFailed || rec.Retries > 1 {
			t.Errorf("record %+v", rec)
		}
	}
	_ = up.Close()
	g.expectRefused("")
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || !rec.DialFailed {
		t.Errorf("record %+v", rec)
	}
	g.sem.await(0, 0)
}

// TestTCPUpstreamResets: a connection that the upstream resets is reset at the client.
func TestTCPUpstreamResets(t *testing.T) {
	up := newTCPUpstream(t, func(c socket) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
	})
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	c.send("x")
	c.expectReset()
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || !rec.Aborted || rec.DialFailed {
		t.Errorf("record %+v", rec)
	}
}

// TestTCPClientResets: a client that resets its connection frees the slot at once.
func TestTCPClientResets(t *testing.T) {
	ended := make(chan struct{})
	up := newTCPUpstream(t, func(c socket) { banner(c); close(ended) })
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	c.expect("hello\n")
	c.leave("resets")
	g.sem.await(0, 0)
	receive(t, ended)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
}

// TestTCPProxyHeader: the upstream is told who the client is, in both versions, and in the
// second one the fence.
func TestTCPProxyHeader(t *testing.T) {
	for version := 1; version <= 2; version++ {
		clients := make(chan net.Addr, 1)
		up := newTCPUpstream(t, func(c socket) {
			spoken := proxyproto.NewConn(c)
			if h := spoken.ProxyHeader(); h == nil || int(h.Version) != version {
				t.Errorf("header %+v, want version %d", h, version)
			}
			if version == 2 {
				tlvs, err := spoken.ProxyHeader().TLVs()
				if err != nil || len(tlvs) != 1 || tlvs[0].Type != proxyproto.PP2_TYPE_UNIQUE_ID || string(tlvs[0].Value) != "p/1/1" {
					t.Errorf("the header has %v, %v, want the fence", tlvs, err)
				}
			}
			clients <- spoken.RemoteAddr()
			_, _ = io.Copy(spoken, spoken)
		})
		g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].Transport.ProxyHeader, c.Pools[0].Fence = version, true })
		c := g.dial()
		c.send("ping")
		c.expect("ping")
		if got := <-clients; got.String() != c.LocalAddr().String() {
			t.Errorf("the upstream was told %v, the client is %v", got, c.LocalAddr())
		}
		_ = c.Close()
	}
}

// TestTCPClientKey: connections of one address are one client.
func TestTCPClientKey(t *testing.T) {
	up := newTCPUpstream(t, banner)
	asked := make(chan admission.Request, 1)
	g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) {
		c.Pools[0].TellClients = true
		c.Admitter = askedAdmitter{c.Admitter, asked}
	})
	g.dial().expect("hello\n")
	if req := <-asked; req.Client != "127.0.0.1" || req.Info.Method != "TCP" || req.Info.Path != ":873" || req.Info.Remote.String() != "127.0.0.1" {
		t.Errorf("asked for %+v, %+v", req, req.Info)
	}
}

// TestTCPTrace: a sampled connection has a span, and one of its wait.
func TestTCPTrace(t *testing.T) {
	up := newTCPUpstream(t, banner)
	recorder, change := traced(1)
	asked := make(chan admission.Request, 1)
	g := newTCPGateway(t, 1, []*url.URL{up.url}, change, func(c *Config) { c.Admitter = askedAdmitter{c.Admitter, asked} })
	c := g.dial()
	c.expect("hello\n")
	_ = c.Close()
	rec := g.records.next(t)
	spans := byName(t, recorder.Ended())
	for began := time.Now(); spans["TCP :873"] == nil; spans = byName(t, recorder.Ended()) {
		if time.Since(began) > patience {
			t.Fatalf("spans %v", spans)
		}
	}
	own, wait := spans["TCP :873"], spans["kgate.queue"]
	if wait == nil || wait.Parent().SpanID() != own.SpanContext().SpanID() || rec.TraceID != own.SpanContext().TraceID().String() {
		t.Errorf("spans %v, record %+v", spans, rec)
	}
	if got := attributeOf(own, "kgate.outcome").AsString(); got != "admitted" {
		t.Errorf("outcome %q", got)
	}
	if req := <-asked; req.Span != spanBytes(own.SpanContext()) || req.Info.Trace != rec.TraceID {
		t.Errorf("asked for %+v, %+v", req, req.Info)
	}
}

// TestTCPAccessLog: a connection has a line, in each form.
func TestTCPAccessLog(t *testing.T) {
	up := newTCPUpstream(t, banner)
	want := `"method":"TCP","host":"","path":":873","proto":"TCP","pool":"p","outcome":"admitted","status":0,"upstream":"` + up.url.Host + `"`
	for _, format := range []AccessFormat{AccessStructured, AccessJSON} {
		lines, change := accessLines(format)
		g := newTCPGateway(t, 1, []*url.URL{up.url}, change)
		c := g.dial()
		c.expect("hello\n")
		_ = c.Close()
		if line := string(<-lines); !strings.Contains(line, want) {
			t.Errorf("line %s lacks %s", line, want)
		}
	}
}

// TestTCPShutdown: Shutdown waits for connections as long as it may, and then resets them.
func TestTCPShutdown(t *testing.T) {
	up := newTCPUpstream(t, banner)
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	c.expect("hello\n")
	done := make(chan error, 1)
	go func() { done <- g.server.Shutdown(t.Context()) }()
	c.send("still served")
	c.expect("still served")
	_ = c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	g = newTCPGateway(t, 1, []*url.URL{up.url})
	c = g.dial()
	c.expect("hello\n")
	waiting := g.dial()
	g.sem.await(1, 1)
	if err := g.server.Close(); err != nil {
		t.Error(err)
	}
	c.expectReset()
	waiting.expectReset()
}

// TestTCPReload: connections that come after a reload follow it, and those that are there
// stay.
func TestTCPReload(t *testing.T) {
	one := newTCPUpstream(t, banner)
	two := newTCPUpstream(t, func(c socket) { _, _ = io.WriteString(c, "two") })
	g := newTCPGateway(t, 2, []*url.URL{one.url})
	c := g.dial()
	c.expect("hello\n")
	cfg := g.handler.current.Load().cfg
	cfg.Pools = []Pool{{Name: "p", Upstreams: []*url.URL{two.url}}}
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	g.dial().expect("two")
	c.send("still here")
	c.expect("still here")
	_ = c.Close()
	cfg.Pools = []Pool{{Name: "other", Upstreams: []*url.URL{two.url}}}
	if err := g.handler.Reload(cfg); err == nil || !strings.Contains(err.Error(), `listener ":873": there is no pool "p"`) {
		t.Errorf("a pool that a listener needs was taken away: %v", err)
	}
	cfg.TCP = nil
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	g.expectRefused("")
}

// askedAdmitter tells what it is asked for.
type askedAdmitter struct {
	Admitter
	asked chan admission.Request
}

func (a askedAdmitter) Acquire(ctx context.Context, req admission.Request) (Slot, error) {
	a.asked <- req
	return a.Admitter.Acquire(ctx, req)
}

// TestTCPServerName: TLS clients are led by the name that they ask for, and speak TLS with
// the upstream itself.
func TestTCPServerName(t *testing.T) {
	secured := ownTLS()
	serve := func(greeting string) *tcpUpstream {
		return newTCPUpstream(t, func(c socket) {
			secure := tls.Server(c, secured)
			_, _ = io.WriteString(secure, greeting)
			_ = secure.Close()
		})
	}
	db, web, plain := serve("db"), serve("web"), newTCPUpstream(t, func(c socket) { _, _ = io.Copy(c, c) })
	g := newTCPGateway(t, 3, []*url.URL{plain.url}, func(c *Config) {
		c.Pools = append(c.Pools, Pool{Name: "db", Upstreams: []*url.URL{db.url}}, Pool{Name: "web", Upstreams: []*url.URL{web.url}})
		c.TCP[0].Names = []ServerName{{Host: "DB.example.com", Pool: "db"}, {Host: "*.web.example.com", Pool: "web"}}
	})
	for name, want := range map[string]string{"db.example.com": "db", "a.b.web.example.com": "web"} {
		secure := tls.Client(g.dial(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if got, err := io.ReadAll(secure); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		_ = secure.Close()
		if rec := g.records.next(t); rec.Pool != want {
			t.Errorf("%s: record %+v", name, rec)
		}
	}
	for _, said := range []string{"no TLS at all", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "GET / HTTP/1.1\r\n\r\n"} {
		c := g.dial()
		c.send(said)
		c.expect(said)
		_ = c.Close()
		if rec := g.records.next(t); rec.Pool != "p" || rec.RequestBytes != int64(len(said)) {
			t.Errorf("%q: record %+v", said, rec)
		}
	}
	// A hello that never ends, each piece of which is well-formed.
	g.expectRefused(strings.Repeat("\x16\x03\x01\x04\x00\x01\x00\xff\xff"+strings.Repeat("x", 1020), 40))
	cfg := g.handler.current.Load().cfg
	cfg.TCP = []TCP{{Listener: ":873", Names: cfg.TCP[0].Names}}
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	other := tls.Client(g.dial(), &tls.Config{ServerName: "other.example.com", InsecureSkipVerify: true})
	if _, err := other.Write(nil); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a name that leads nowhere: %v", err)
	}
}

// TestTCPServerNameThenSilence: the time for what a client says first bounds nothing that
// follows.
func TestTCPServerNameThenSilence(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newTCPUpstream(t, func(c socket) { _, _ = io.Copy(c, c) })
		g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.TCP[0].Names = []ServerName{{Host: "other", Pool: "p"}} })
		g.listenTCP(downstream.Config{})
		c := g.dial()
		c.send("not TLS")
		c.expect("not TLS")
		time.Sleep(2 * headerTime)
		c.send("still there")
		c.expect("still there")
	})
}
