package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestSlotHeldUntilLastByte: the slot outlives the header and every byte of the
// body but the last.
func TestSlotHeldUntilLastByte(t *testing.T) {
	for _, length := range []string{"4", ""} { // announced, chunked
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			for range 4 {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				up.pass(r)
			}
		}))
		res := g.do(g.request("GET", "/"))
		one := make([]byte, 1)
		for range 3 {
			// Each byte arrives while the upstream holds back the next one.
			if _, err := io.ReadFull(res.Body, one); err != nil {
				t.Fatal(err)
			}
			if g.sem.now() != 1 {
				t.Fatal("the slot was released before the last byte")
			}
			up.proceed <- struct{}{}
		}
		if _, err := io.ReadFull(res.Body, one); err != nil {
			t.Fatal(err)
		}
		up.proceed <- struct{}{}
		if _, err := res.Body.Read(one); err != io.EOF {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		g.sem.await(0, 0)
		rec := g.records.next(t)
		if rec.Outcome != OutcomeAdmitted || rec.Status != 200 || rec.UpstreamStatus != 200 || rec.Bytes != 4 || rec.Aborted || rec.Pool != "p" {
			t.Errorf("record %+v", rec)
		}
		if rec.Hold <= 0 || rec.FirstByte <= 0 || rec.FirstByte > rec.Hold || rec.Upstream != mustURL(t, g.upstream.URL).Host {
			t.Errorf("record %+v", rec)
		}
	}
}

// TestClientAbortsDownload: a client that leaves in mid-body frees its slot,
// and the upstream is told.
func TestClientAbortsDownload(t *testing.T) {
	up := newGate()
	gone := make(chan struct{})
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		up.pass(r)
		close(gone)
	}))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.response()
	up.awaitEntered(t)
	g.sem.await(1, 0)
	_ = c.Close()
	g.sem.await(0, 0)
	<-gone
	if rec := g.records.next(t); rec.Outcome != OutcomeAdmitted || !rec.Aborted || rec.Status != 200 {
		t.Errorf("record %+v", rec)
	}
}

// orderAdmitter checks at each release that no connection to the upstream is open.
type orderAdmitter struct {
	t        *testing.T
	handler  func() *Handler
	released chan struct{}
}

func (a orderAdmitter) Acquire(context.Context, Ask) (Slot, error) {
	return orderSlot{admitter: a}, nil
}

type orderSlot struct {
	openSlot
	admitter orderAdmitter
}

func (s orderSlot) Release() {
	if n := s.admitter.handler().current.Load().targets[0].upstreams[0].client.Open(); n != 0 {
		s.admitter.t.Errorf("released while %d connections to the upstream are open", n)
	}
	s.admitter.released <- struct{}{}
}

// TestClosedBeforeRelease: when an upgraded connection ends, the upstream's side
// is closed before the slot is free.
func TestClosedBeforeRelease(t *testing.T) {
	var g *gateway
	admitter := orderAdmitter{t: t, handler: func() *Handler { return g.handler }, released: make(chan struct{})}
	g = newGateway(t, 1, echoUpgrade(t), func(c *Config) { c.Admitter = admitter })
	for range 50 {
		c := g.dial()
		c.send(upgradeRequest)
		c.response()
		_ = c.Close()
		<-admitter.released
	}
}

// TestUpstreamAborts: the client sees a broken answer, not a short one.
func TestUpstreamAborts(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	res := g.do(g.request("GET", "/"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the answer looks whole")
	}
	_ = res.Body.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeUpstreamError || !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
}

// panicTransport panics in place of an answer.
type panicTransport struct{}

func (panicTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("planted") }

// panicBody panics in the middle of an answer.
type panicBody struct{ n int }

func (b *panicBody) Read(p []byte) (int, error) {
	if b.n++; b.n > 1 {
		panic("planted")
	}
	return copy(p, "x"), nil
}
func (*panicBody) Close() error { return nil }

type panicBodyTransport struct{}

func (panicBodyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: &panicBody{}, Request: req}, nil
}

// TestPanic: a panic anywhere releases the slot, and the next request is served.
func TestPanic(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	u := g.handler.current.Load().targets[0].upstreams[0]
	healthy := u.requests

	u.requests = without{panicTransport{}}
	res := g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != 500 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Status != 500 || rec.Aborted {
		t.Errorf("record %+v", rec)
	}

	u.requests = without{panicBodyTransport{}}
	res = g.do(g.request("GET", "/"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the answer looks whole")
	}
	_ = res.Body.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); !rec.Aborted {
		t.Errorf("record %+v", rec)
	}

	u.requests = healthy
	res = g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("status %d after the panics", res.StatusCode)
	}
	if n := u.inFlight; n != 0 {
		t.Errorf("%d counted in flight at the upstream", n)
	}
}

// echoUpgrade answers an upgrade with an echo.
func echoUpgrade(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\n\r\n")
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
	if res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" || res.Header.Get("Server-Timing") == "" {
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
	if rec := g.records.next(t); rec.Status != 101 || rec.Outcome != OutcomeAdmitted {
		t.Errorf("record %+v", rec)
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
	if n := g.handler.upgrades.n; n != 0 {
		t.Errorf("%d upgrades counted", n)
	}
}

// TestClientLeavesQueue: a client that leaves while it waits leaves the line.
func TestClientLeavesQueue(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	first := g.dial()
	first.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)

	second := g.dial()
	second.send("GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	g.sem.await(1, 1)
	_ = second.Close()
	g.sem.await(1, 0)
	rec := g.records.next(t)
	if rec.Outcome != OutcomeClientGone || rec.Status != 499 || rec.Upstream != "" || rec.Wait <= 0 || rec.Hold != 0 {
		t.Errorf("record %+v", rec)
	}
	close(up.proceed)
	if res := first.response(); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
}

// TestContinueAfterAdmission: a client that waits for 100 Continue gets it only
// once it is admitted, and its body goes through.
func TestContinueAfterAdmission(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			up.pass(r)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	first := g.dial()
	first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)

	second := g.dial()
	second.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	g.sem.await(1, 1)
	if err := second.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	// Nothing may come; that it would have come by now can only be had by time.
	var netErr net.Error
	if b, err := second.br.Peek(1); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Fatalf("%q, %v before admission", b, err)
	}
	_ = second.SetReadDeadline(time.Now().Add(patience))
	close(up.proceed)
	if res := second.response(); res.StatusCode != 100 {
		t.Fatalf("status %d, want 100", res.StatusCode)
	}
	second.send("hello")
	res := second.response()
	if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(b) != "hello" {
		t.Errorf("status %d, body %q", res.StatusCode, b)
	}
}

// TestContinueRefused: a refused client is never told to send its body.
func TestContinueRefused(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.sem.refusal = &Refusal{Reason: ReasonQueueFull}
	c := g.dial()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if res := c.response(); res.StatusCode != 503 || !res.Close {
		t.Errorf("got %v, close %v", res.Status, res.Close)
	}
}

// TestMalformed: what net/http refuses costs no slot and reaches no upstream.
func TestMalformed(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached the upstream") }))
	for _, raw := range []string{
		"GARBAGE GARBAGE\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", // no Host
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nBad Name: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"GET / HTTP/9.9\r\nHost: h\r\n\r\n",
		"GET /../x HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /x%2f..%2Fy HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
	} {
		c := g.dial()
		// The server may answer and close before it has read everything.
		_, _ = io.WriteString(c, raw)
		res, err := http.ReadResponse(c.br, nil)
		if err == nil && (res.StatusCode < 400 || res.StatusCode > 505) {
			t.Errorf("%.40q: status %d", raw, res.StatusCode)
		}
		_ = c.Close()
	}
	g.sem.mu.Lock()
	defer g.sem.mu.Unlock()
	if g.sem.maxHeld != 0 {
		t.Error("a slot was taken")
	}
}

// TestSmuggling: a chunked body with a Content-Length beside it is one request
// to the upstream, whatever the length says.
func TestSmuggling(t *testing.T) {
	requests := make(chan string, 10)
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests <- r.URL.Path + " " + string(b)
	}))
	c := g.dial()
	c.send("POST /one HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /two HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	_, _ = io.Copy(io.Discard, c.br)
	close(requests)
	for got := range requests {
		if got != "/one hello" && got != "/two " {
			t.Errorf("the upstream got %q", got)
		}
	}
}

// TestNoRequestAfterBrokenBody: what follows a body that is broken, or that the
// upstream did not wait for, is never taken for a request.
func TestNoRequestAfterBrokenBody(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/smuggled":
			t.Error("the rest of a body reached the upstream as a request")
		case "/early":
			// Else this upstream itself would wait for the body first.
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	const hidden = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, raw := range []string{
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden,
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX" + hidden,
		"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + hidden,
		"POST /early HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + hidden,
	} {
		c := g.dial()
		c.send(raw)
		for kept := true; kept; {
			res, err := http.ReadResponse(c.br, nil)
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if kept = !res.Close; kept {
				t.Errorf("%.60q...: the connection is kept after %s", raw, res.Status)
			}
		}
		_ = c.Close()
	}
	g.sem.await(0, 0)
}

// TestClientBodyBreaks: a body that cannot be read is the client's fault.
func TestClientBodyBreaks(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	c := g.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n")
	if res := c.response(); res.StatusCode != 400 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}

// TestUpstreamUnreachable: 502, and the slot is free.
func TestUpstreamUnreachable(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.upstream.Close()
	res := g.do(g.request("GET", "/"))
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 502 || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(b), `"status":502`) {
		t.Errorf("got %v %v %s", res.Status, res.Header, b)
	}
	if res.Header.Get("Server-Timing") == "" {
		t.Error("it was admitted, but Server-Timing is missing")
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeUpstreamError || rec.UpstreamStatus != 0 || rec.Status != 502 {
		t.Errorf("record %+v", rec)
	}
}

// TestUpstreamSilent: 504 after the time for the header, and the upstream's
// connection is closed.
func TestUpstreamSilent(t *testing.T) {
	gone := make(chan struct{})
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	}), func(c *Config) { c.Pools[0].Transport.ResponseHeaderTimeout = 20 * time.Millisecond })
	res := g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != 504 {
		t.Errorf("got %v", res.Status)
	}
	<-gone
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeUpstreamError {
		t.Errorf("record %+v", rec)
	}
}

// TestAdmissionFails: an error that the Admitter should not return is a 500,
// and is not shown to the client.
func TestAdmissionFails(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.sem.err = errors.New("secret")
	res := g.do(g.request("GET", "/"))
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 500 || strings.Contains(string(b), "secret") {
		t.Errorf("got %v %s", res.Status, b)
	}
}

// TestShutdownWaits: Shutdown lets requests and upgrades finish; when its time
// is over it breaks them off.
func TestShutdownWaits(t *testing.T) {
	g := newGateway(t, 2, echoUpgrade(t))
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	down := make(chan error, 1)
	go func() { down <- g.server.Shutdown(context.Background()) }()
	c.send("ping")
	if _, err := io.ReadFull(c.br, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-down:
		t.Fatal("Shutdown did not wait for the upgrade", err)
	default:
	}
	_ = c.Close()
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownBreaksOff(t *testing.T) {
	up := newGate()
	mux := http.NewServeMux()
	mux.Handle("/ws", echoUpgrade(t))
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { up.pass(r) })
	g := newGateway(t, 2, mux)
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	d := g.dial()
	d.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)
	w := g.dial()
	w.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	g.sem.await(2, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	g.sem.await(0, 0)
	if _, err := io.Copy(io.Discard, c.br); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// TestSeveralUpstreams: the one with the fewest requests in flight is taken.
func TestSeveralUpstreams(t *testing.T) {
	gates := []*gate{newGate(), newGate(), newGate()}
	var urls []*url.URL
	for _, up := range gates {
		urls = append(urls, startHandler(t, func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	}
	g := newGateway(t, 100, http.NotFoundHandler(), func(c *Config) { c.Pools[0].Upstreams = urls })
	conns := make([]*rawConn, 9)
	for i := range conns {
		conns[i] = g.dial()
		conns[i].send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		g.sem.await(i+1, 0)
	}
	for _, up := range gates {
		for range 3 {
			up.awaitEntered(t)
		}
	}
	close(gates[1].proceed) // its three end, the next ones go there
	g.sem.await(6, 0)
	for range 3 {
		c := g.dial()
		c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		c.response()
		gates[1].awaitEntered(t)
	}
	close(gates[0].proceed)
	close(gates[2].proceed)
}
