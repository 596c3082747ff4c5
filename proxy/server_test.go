package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/net/http2"

	"github.com/kgate/kgate/proxy/downstream"
)

// listen serves the gateway's handler on one more address, in another way.
func (g *gateway) listen(cfg downstream.Config, wrap ...func(net.Listener) net.Listener) *downstream.Server {
	g.t.Helper()
	cfg.Handler = g.handler
	server, err := downstream.NewServer(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	l := listen(g.t)
	g.addr = l.Addr().String()
	for _, f := range wrap {
		l = f(l)
	}
	served := make(chan error, 1)
	go func() {
		if cfg.TLS != nil {
			served <- server.ServeTLS(l)
		} else {
			served <- server.Serve(l)
		}
	}()
	g.t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; err != nil {
			g.t.Error(err)
		}
	})
	return server
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// ownTLS has a certificate that nobody has signed.
func ownTLS() *tls.Config {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// TestTLS: HTTP/1.1 and HTTP/2 over TLS, and the upstream is told.
func TestTLS(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	g.listen(downstream.Config{TLS: ownTLS()})
	for _, http2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
		res, err := (&http.Client{Transport: tr}).Get("https://" + g.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if want := map[bool]int{false: 1, true: 2}[http2]; res.ProtoMajor != want || res.Header.Get("Got-X-Forwarded-Proto") != "https" {
			t.Errorf("got %s, header %v", res.Proto, res.Header)
		}
		tr.CloseIdleConnections()
	}
}

// TestProxyProtocol: the client is who the PROXY header says, if it comes from
// where it must come from; no header, and one from elsewhere, is no request.
func TestProxyProtocol(t *testing.T) {
	v2, err := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.IP{203, 0, 113, 7}, Port: 5}, &net.TCPAddr{IP: net.IP{127, 0, 0, 1}, Port: 80}).Format()
	if err != nil {
		t.Fatal(err)
	}
	const (
		v1      = "PROXY TCP4 203.0.113.7 127.0.0.1 5 80\r\n"
		v1six   = "PROXY TCP6 2001:db8::7 ::1 5 80\r\n"
		request = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
	)
	for _, c := range []struct {
		name, sent string
		from       []netip.Prefix
		status     int // 0: the connection is closed
		forwarded  string
	}{
		{"v1", v1 + request, loopback, 200, "203.0.113.7"},
		{"v1, IPv6", v1six + request, loopback, 200, "2001:db8::7"},
		{"v2", string(v2) + request, loopback, 200, "203.0.113.7"},
		{"unknown", "PROXY UNKNOWN\r\n" + request, loopback, 200, "127.0.0.1"},
		{"missing", request, loopback, 0, ""},
		{"broken", "PROXY TCP4 203.0.113.7\r\n" + request, loopback, 0, ""},
		{"from elsewhere, v1", v1 + request, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, 400, ""},
		{"from elsewhere, v2", string(v2) + request, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, 400, ""},
		{"from nowhere", v1 + request, nil, 400, ""},
		{"none from elsewhere", request, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, 200, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 1, http.HandlerFunc(echoRequest))
				g.listen(downstream.Config{ProxyProtocol: c.from})
				conn := g.dial()
				conn.send(c.sent)
				res, err := http.ReadResponse(conn.br, nil)
				if err != nil && c.status != 0 || err == nil && res.StatusCode != c.status {
					t.Fatalf("got %+v, %v", res, err)
				}
				if c.forwarded != "" && res.Header.Get("Got-X-Forwarded-For") != c.forwarded {
					t.Errorf("the upstream sees %q", res.Header["Got-X-Forwarded-For"])
				}
			})
		})
	}
}

// TestProxyHeaderTimeout: who owes a PROXY header and sends none is cut off.
func TestProxyHeaderTimeout(t *testing.T) {
	for _, said := range []string{"", "PROX", "\r\n\r\n\x00"} {
		inVirtualTime(t, func(t *testing.T) {
			g := newGateway(t, 1, http.HandlerFunc(echoRequest))
			server := g.listen(downstream.Config{ProxyProtocol: loopback})
			conn := g.dial()
			conn.send(said)
			endAfter(t, server, headerTime)
			if b, err := io.ReadAll(conn.br); err != nil || len(b) > 0 {
				t.Errorf("%q: got %q, %v", said, b, err)
			}
		})
	}
}

// TestMaxConnections: one more waits until another ends; a kept connection makes
// room at once.
func TestMaxConnections(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		g := newGateway(t, 10, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				up.pass(r)
			}
		}))
		g.listen(downstream.Config{MaxConnections: 2})
		busy, kept := g.dial(), g.dial()
		busy.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)
		kept.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		kept.response()

		third := g.dial()
		third.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t) // the kept one has gone
		if _, err := kept.br.ReadByte(); err == nil {
			t.Error("the kept connection is still open")
		}
		fourth := g.dial()
		fourth.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		_ = fourth.SetReadDeadline(time.Now().Add(patience / 2))
		if b, err := fourth.br.Peek(1); err == nil {
			t.Fatalf("%q came over a third connection", b)
		}
		_ = fourth.SetReadDeadline(time.Time{})
		up.proceed <- struct{}{}
		fourth.response()
		close(up.proceed)
		busy.response()
		third.response()
	})
}

// TestFullAnswersClose: while others wait, an answer over HTTP/1 is the last one of its connection.
// So a client that asks again and again does not keep them out.
func TestFullAnswersClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		g := newGateway(t, 10, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
		logger, lines := logOf()
		g.listen(downstream.Config{MaxConnections: 1, Logger: logger})
		first, waits := g.dial(), g.dial()
		first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)
		awaitLine(t, lines, "listen.max_connections")
		close(up.proceed)
		if res := first.response(); !res.Close {
			t.Error("the answer does not say that the connection is closed")
		}
		waits.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if res := waits.response(); res.Close {
			t.Error("the connection is closed for nobody")
		}
	})
}

// TestMaxConnectionsHTTP2: an HTTP/2 connection that waits for its first request makes no room. One that is idle
// after it does, and its client learns which requests were seen.
func TestMaxConnectionsHTTP2(t *testing.T) {
	for _, over := range []string{"in the clear", "TLS"} {
		t.Run(over, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 10, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				logger, lines := logOf()
				cfg := downstream.Config{MaxConnections: 1, ReadHeaderTimeout: time.Hour, Logger: logger}
				dial := g.dial
				if over == "TLS" {
					cfg.TLS, dial = ownTLS(), func() *rawConn { return g.dialTLS("h2") }
				}
				g.listen(cfg)
				c := dial()
				c.send(http2.ClientPreface)
				fr := http2.NewFramer(c, c)
				_ = fr.WriteSettings()
				_ = fr.WriteSettingsAck()
				_ = fr.WritePing(false, [8]byte{})
				await := func(what string, is func(http2.Frame) bool) http2.Frame {
					t.Helper()
					for {
						f, err := fr.ReadFrame()
						if err != nil {
							t.Fatalf("%v in place of %s", err, what)
						}
						if is(f) {
							return f
						}
					}
				}
				await("the answer to a ping", func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
				g.dial()
				awaitLine(t, lines, "listen.max_connections")
				time.Sleep(300 * time.Millisecond) // longer than others may be idle
				if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "GET", "/"), EndStream: true, EndHeaders: true}); err != nil {
					t.Fatal(err)
				}
				await("an answer", func(f http2.Frame) bool {
					return f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream)
				})
				end := await("a GOAWAY", func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway }).(*http2.GoAwayFrame)
				if end.LastStreamID != 1 || end.ErrCode != http2.ErrCodeNo {
					t.Errorf("the end is %v", end)
				}
				if f, err := fr.ReadFrame(); err == nil {
					t.Errorf("%v after the GOAWAY", f)
				}
			})
		})
	}
}

// TestSlowReaderKeepsItsAnswer: to net/http an HTTP/2 connection is idle when the last answer
// is written. It is not closed before its client has it, nor when others want its place.
func TestSlowReaderKeepsItsAnswer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs to know what the client has")
	}
	const size, step = 300_000, 30_000
	for _, tt := range []struct {
		name string
		then func(dial func() *rawConn, server *downstream.Server) error
	}{
		{"crowd", func(dial func() *rawConn, _ *downstream.Server) error {
			for range 2 { // the second one needs the place of the first
				c := dial()
				if _, err := io.WriteString(c, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					return err
				}
				resp, err := http.ReadResponse(c.br, nil)
				if err != nil {
					return err
				}
				_ = resp.Body.Close()
			}
			return nil
		}},
		{"shutdown", func(_ func() *rawConn, server *downstream.Server) error { return server.Shutdown(context.Background()) }},
	} {
		for _, over := range []string{"in the clear", "TLS"} {
			t.Run(tt.name+" "+over, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
				cfg, dial := downstream.Config{MaxConnections: 2, ReadHeaderTimeout: time.Minute}, g.dial
				if over == "TLS" {
					cfg.TLS, dial = ownTLS(), func() *rawConn { return g.dialTLS("http/1.1") }
				}
				server, done := g.listen(cfg), make(chan error, 1)
				c := g.dial()
				_ = c.Conn.(socket).SetReadBuffer(16 << 10)
				if over == "TLS" {
					c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				}
				c.send(http2.ClientPreface)
				fr := http2.NewFramer(c, c.Conn)
				_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * size})
				_ = fr.WriteWindowUpdate(0, 2*size)
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "GET", "/"), EndStream: true, EndHeaders: true})
				got, read := 0, 0
				for got < size {
					f, err := fr.ReadFrame()
					if err != nil {
						t.Fatalf("%v after %d bytes of the answer", err, got)
					}
					data, ok := f.(*http2.DataFrame)
					if !ok {
						continue
					}
					if got == 0 { // all of it is written
						time.Sleep(200 * time.Millisecond)
						go func() { done <- tt.then(dial, server) }()
						if tt.name == "crowd" { // it does not wait for a slow reader's place
							done <- <-done
						}
					}
					got, read = got+len(data.Data()), read+len(data.Data())
					if read >= step {
						_ = fr.WriteWindowUpdate(0, uint32(read))
						read = 0
						time.Sleep(150 * time.Millisecond)
					}
				}
				_ = c.Close()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestSilentReaderDelaysNoEnd: a client that reads nothing of its answer, and stays, does not keep
// a server from ending in time.
func TestSilentReaderDelaysNoEnd(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]string{"HTTP/1.1": "", "HTTP/2": http2.ClientPreface} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 300_000)) }))
			server := g.listen(downstream.Config{ReadHeaderTimeout: time.Minute})
			c := g.dial()
			_ = c.Conn.(socket).SetReadBuffer(16 << 10)
			if c.send(over); over == "" {
				c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			} else {
				fr := http2.NewFramer(c, c)
				_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
				_ = fr.WriteWindowUpdate(0, 1<<20)
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "GET", "/"), EndStream: true, EndHeaders: true})
			}
			time.Sleep(500 * time.Millisecond) // all of the answer is written
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- server.Shutdown(ctx) }()
			select {
			case err := <-ended:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the end: %v", err)
				}
			case <-time.After(patience / 2):
				t.Fatal("the server does not end")
			}
		})
	}
}

// slowRecord sends what is written in two halves, with a pause between them.
type slowRecord struct {
	net.Conn
	pause time.Duration
	half  func() // has been written
}

func (s *slowRecord) Write(p []byte) (int, error) {
	half := 0
	if s.pause > 0 {
		half = len(p) / 2
		if n, err := s.Conn.Write(p[:half]); err != nil {
			return n, err
		}
		s.half()
		time.Sleep(s.pause)
	}
	n, err := s.Conn.Write(p[half:])
	return half + n, err
}

// TestHalfARecordIsARequest: a kept connection does not make room when some of a request has
// come, though TLS does not show it yet.
func TestHalfARecordIsARequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		g.listen(downstream.Config{MaxConnections: 1, ReadHeaderTimeout: time.Minute, TLS: ownTLS()})
		c := g.dial()
		records := &slowRecord{Conn: c.Conn}
		c.Conn = tls.Client(records, &tls.Config{InsecureSkipVerify: true})
		c.br.Reset(c.Conn)
		for range 2 {
			c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(c.br, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			records.pause = 400 * time.Millisecond
			records.half = func() {
				g.dial()
			}
		}
	})
}

// TestNewcomersStarveNobody: connections that bring no whole request, and there are more of them
// than are allowed, do not keep a client of another address out.
func TestNewcomersStarveNobody(t *testing.T) {
	const most, flood = 10, 35
	request := "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, says := range map[string]string{
		"nothing": "", "half a head": request[:20], "half a head after a request": request + request[:20],
		"the preface of HTTP/2": http2.ClientPreface,
		"half a frame":          http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x05\x01\x04\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 10, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				g.listen(downstream.Config{MaxConnections: most, ReadHeaderTimeout: time.Hour})
				from := func(addr string) *rawConn {
					return g.dialBy(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}})
				}
				for range flood {
					from("127.0.0.2").send(says)
				}
				honest := from("127.0.0.3")
				honest.send(request)
				if res := honest.response(); res.StatusCode != http.StatusOK {
					t.Error(res.Status)
				}
			})
		})
	}
}

// TestMaxConnectionsClose: a server that is full can be closed.
func TestMaxConnectionsClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(echoRequest))
		logger, lines := logOf()
		server := g.listen(downstream.Config{MaxConnections: 1, ReadHeaderTimeout: time.Hour, Logger: logger})
		g.dial()
		g.dial()
		awaitLine(t, lines, "listen.max_connections")
		if err := server.Close(); err != nil { // while the clients are still there
			t.Error(err)
		}
	})
}

// TestSlowHeader: a header must be complete in its time, however its bytes come.
func TestSlowHeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(echoRequest))
		conn := g.dial()
		for range 9 {
			conn.send("G")
			time.Sleep(headerTime / 10)
		}
		endAfter(t, g.server, headerTime/10)
	})
}
