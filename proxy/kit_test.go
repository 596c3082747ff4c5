package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/upstream"
)

const (
	patience   = 30 * time.Second
	headerTime = 10 * time.Second // the default ReadHeaderTimeout
)

// recorder is an Observer that keeps the records.
type recorder struct {
	admitted chan time.Duration
	done     chan *Record
}

func newRecorder() *recorder {
	return &recorder{admitted: make(chan time.Duration, 1<<16), done: make(chan *Record, 1<<16)}
}

func (r *recorder) Admitted(rec *Record) { r.admitted <- rec.Wait }
func (r *recorder) Done(rec *Record) {
	kept := *rec
	r.done <- &kept
}

func (r *recorder) next(t testing.TB) Record {
	t.Helper()
	select {
	case rec := <-r.done:
		return *rec
	case <-time.After(patience):
		t.Fatal("no record of the request")
		return Record{}
	}
}

// gateway is a Server on loopback in front of one upstream, with one pool "p"
// for everything.
type gateway struct {
	t        testing.TB
	addr     string
	url      string
	sem      *semaphore
	records  *recorder
	handler  *Handler
	server   *downstream.Server
	upstream *httptest.Server
	metered  *meteredListener
	client   *http.Client
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newGateway(t testing.TB, k int, upstream http.Handler, change ...func(*Config)) *gateway {
	t.Helper()
	g := &gateway{t: t, sem: newSemaphore(t, k), records: newRecorder()}
	g.upstream = unstarted(t, upstream)
	g.metered = &meteredListener{Listener: g.upstream.Listener}
	g.upstream.Listener = g.metered
	g.upstream.Config.Protocols = new(http.Protocols)
	g.upstream.Config.Protocols.SetHTTP1(true)
	g.upstream.Config.Protocols.SetUnencryptedHTTP2(true)
	g.upstream.Start()
	t.Cleanup(g.upstream.Close)
	cfg := Config{
		Admitter: g.sem,
		Standing: g.sem.standing.Load,
		Observer: g.records,
		Pools:    []Pool{{Name: "p", Upstreams: []*url.URL{mustURL(t, g.upstream.URL)}}},
		Routes:   []Route{{Pool: "p"}},
	}
	for _, f := range change {
		f(&cfg)
	}
	g.serve(cfg)
	return g
}

func (g *gateway) serve(cfg Config) {
	t := g.t
	t.Helper()
	if n := memoryOf(t); n != nil {
		for i := range cfg.Pools {
			cfg.Pools[i].Transport.dialer = n
		}
		for i := range cfg.Routes {
			cfg.Routes[i].Transport.dialer = n
		}
	}
	var err error
	if g.handler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if g.server, err = downstream.NewServer(downstream.Config{Handler: g.handler}); err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	g.addr = l.Addr().String()
	g.url = "http://" + g.addr
	served := make(chan error, 1)
	go func() { served <- g.server.Serve(l) }()
	tr := &http.Transport{DisableCompression: true, DialContext: dialerOf(t).DialContext}
	g.client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := g.server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func (g *gateway) request(method, path string, header ...string) *http.Request {
	g.t.Helper()
	req, err := http.NewRequest(method, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// do sends a request. The caller closes the body.
func (g *gateway) do(req *http.Request) *http.Response {
	g.t.Helper()
	res, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	return res
}

// meteredListener counts what reaches an upstream.
type meteredListener struct {
	net.Listener
	conns, bytes atomic.Int64
}

func (l *meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.Add(1)
	return meteredConn{c, l}, nil
}

type meteredConn struct {
	net.Conn
	l *meteredListener
}

func (c meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.l.bytes.Add(int64(n))
	return n, err
}

// socket is a connection of TCP, or of the network in its place.
type socket interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
	SetReadBuffer(bytes int) error
}

// rawConn is a client that speaks for itself.
type rawConn struct {
	net.Conn
	br *bufio.Reader
	t  testing.TB
}

func (g *gateway) dial() *rawConn {
	g.t.Helper()
	return g.dialBy(new(net.Dialer))
}

func (g *gateway) dialBy(d *net.Dialer) *rawConn {
	g.t.Helper()
	if n := memoryOf(g.t); n != nil {
		return g.speak(n.DialFrom(g.t.Context(), ipOf(d.LocalAddr), g.addr))
	}
	network := "tcp"
	if filepath.IsAbs(g.addr) {
		network = "unix"
	}
	return g.speak(d.Dial(network, g.addr))
}

func ipOf(addr net.Addr) net.IP {
	if addr == nil {
		return net.IPv4(127, 0, 0, 1)
	}
	return addr.(*net.TCPAddr).IP
}

func (g *gateway) speak(conn net.Conn, err error) *rawConn {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return &rawConn{Conn: conn, br: bufio.NewReader(conn), t: g.t}
}

func (c *rawConn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawConn) response() *http.Response {
	c.t.Helper()
	res, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// gate is an upstream's handler that a test drives: it announces each request
// and goes on when told so.
type gate struct {
	entered chan *http.Request
	proceed chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan *http.Request, 1024), proceed: make(chan struct{})}
}

func (g *gate) pass(r *http.Request) bool {
	g.entered <- r
	select {
	case <-g.proceed:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (g *gate) awaitEntered(t testing.TB) *http.Request {
	t.Helper()
	select {
	case r := <-g.entered:
		return r
	case <-time.After(patience):
		t.Fatal("no request reached the upstream")
		return nil
	}
}

// unstarted returns a server on the test's network.
func unstarted(t testing.TB, h http.Handler) *httptest.Server {
	return &httptest.Server{Listener: listen(t), Config: &http.Server{Handler: h}}
}

func startHandler(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := unstarted(t, h)
	s.Start()
	t.Cleanup(s.Close)
	return mustURL(t, s.URL)
}

// without is a requester that needs no caller.
type without struct{ http.RoundTripper }

func (w without) Do(req *upstream.Request, _ upstream.Caller) (*upstream.Response, error) {
	req.Header = adapt.Header(req.Fields)
	res, err := w.RoundTrip(&req.Request)
	if err != nil {
		return nil, err
	}
	return &upstream.Response{Response: res, Fields: adapt.Fields(res.Header)}, nil
}
