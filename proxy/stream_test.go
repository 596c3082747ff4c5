package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/admission"
)

// h2cClient speaks HTTP/2 with prior knowledge, all over one connection.
func h2cClient(t *testing.T) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: dialerOf(t).DialContext}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// stream is a call as gRPC's bidirectional streams make them.
type stream struct {
	t   *testing.T
	in  *io.PipeWriter
	res *http.Response
}

func (g *gateway) stream(t *testing.T, client *http.Client) *stream {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	req, err := http.NewRequest("POST", g.url, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	s := &stream{t, w, res}
	s.ping()
	return s
}

func (s *stream) ping() {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "ping"); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.ReadFull(s.res.Body, make([]byte, 4)); err != nil {
		s.t.Fatal(err)
	}
}

// shareConn goes on until the transport has put a connection to the upstream
// where requests share it, which it may do only after the first has been answered.
func (g *gateway) shareConn(client *http.Client) {
	g.t.Helper()
	for before := int64(-1); g.metered.conns.Load() != before; {
		before = g.metered.conns.Load()
		res, err := client.Get(g.url)
		if err != nil {
			g.t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		g.sem.await(0, 0)
		g.records.next(g.t)
	}
}

// echoStream is the other side of a stream.
func echoStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "Grpc-Status")
	w.Header().Set("Content-Type", "application/grpc")
	_ = http.NewResponseController(w).Flush()
	buf := make([]byte, 1024)
	for {
		n, err := r.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		_ = http.NewResponseController(w).Flush()
		if err != nil {
			w.Header().Set("Grpc-Status", "0")
			return
		}
	}
}

// TestLostStream: of two streams over one connection on either side, only that
// is reset whose slot is lost.
func TestLostStream(t *testing.T) {
	g := newGateway(t, 2, http.HandlerFunc(echoStream), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	client := h2cClient(t)
	g.shareConn(client)
	before := g.metered.conns.Load()
	stays, goes := g.stream(t, client), g.stream(t, client)
	if n := g.metered.conns.Load(); n != before {
		t.Fatalf("%d new connections to the upstream", n-before)
	}
	g.sem.last().lose()
	if _, err := io.ReadAll(goes.res.Body); err == nil {
		t.Error("the lost stream looks whole")
	}
	g.sem.await(1, 0)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
	stays.ping()
	_ = stays.in.Close()
	if _, err := io.ReadAll(stays.res.Body); err != nil || stays.res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("the other stream ended with %v, trailers %v", err, stays.res.Trailer)
	}
	g.sem.await(0, 0)
}

// TestStandingLostStreams: with the standing all streams go, and the upstream's
// connection with them; the client's stays, and is good again later.
func TestStandingLostStreams(t *testing.T) {
	g := newGateway(t, 2, http.HandlerFunc(echoStream), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	client := h2cClient(t)
	streams := []*stream{g.stream(t, client), g.stream(t, client)}
	before := g.metered.conns.Load()
	g.sem.lapse()
	g.awaitClosed()
	for _, s := range streams {
		if _, err := io.ReadAll(s.res.Body); err == nil {
			t.Error("a lost stream looks whole")
		}
	}
	g.sem.await(0, 0)
	g.sem.standing.Store(2)
	s := g.stream(t, client)
	_ = s.in.Close()
	if _, err := io.ReadAll(s.res.Body); err != nil {
		t.Error(err)
	}
	if n := g.metered.conns.Load(); n != before+1 {
		t.Errorf("%d new connections to the upstream, want 1 for the new standing", n-before)
	}
}

// TestUpstreamEndsStream: an upstream that has said its last word is done with the
// request, and its slot free, though the client has more to say.
func TestUpstreamEndsStream(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		for name, client := range map[string]func(*gateway) *http.Client{
			"HTTP/1.1": func(g *gateway) *http.Client { return g.client },
			"HTTP/2":   func(*gateway) *http.Client { return h2cClient(t) },
		} {
			g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				w.Header().Set("Trailer", "Grpc-Status")
				b := make([]byte, 4)
				_, _ = io.ReadFull(r.Body, b)
				_, _ = w.Write(b)
				w.Header().Set("Grpc-Status", "9")
			}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
			s := &stream{t: t}
			var body *io.PipeReader
			body, s.in = io.Pipe()
			defer s.in.Close()
			go func() { _, _ = io.WriteString(s.in, "ping") }()
			res, err := client(g).Post(g.url, "application/grpc", body)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || string(b) != "ping" || res.Trailer.Get("Grpc-Status") != "9" {
				t.Errorf("%s, upstream %s: %q, %v, trailer %v", name, scheme, b, err, res.Trailer)
			}
			g.sem.await(0, 0)
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || rec.Aborted {
				t.Errorf("%s, upstream %s: record %+v", name, scheme, rec)
			}
		}
	}
}

// TestTrailerOfKnownLength: HTTP/2 clients may send trailers behind a body whose
// length they have announced, which HTTP/1.1 cannot carry.
func TestTrailerOfKnownLength(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("Got", string(b)+" "+r.Trailer.Get("X-Sum"))
		}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = scheme })
		req, err := http.NewRequest("POST", g.url, io.NopCloser(strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 5
		req.Trailer = http.Header{"X-Sum": {"sum"}}
		res, err := h2cClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Got"); got != "hello sum" {
			t.Errorf("%s: the upstream got %q", scheme, got)
		}
	}
}

// TestAnswerTrailerOfKnownLength: an HTTP/2 upstream may do so, too. A client in
// HTTP/1.1 gets the answer in chunks.
func TestAnswerTrailerOfKnownLength(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("X-Sum", "sum")
	}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	for version, client := range map[string]*http.Client{"HTTP/1.1": g.client, "HTTP/2.0": h2cClient(t)} {
		res, err := client.Get(g.url)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.Proto != version || err != nil || string(b) != "hello" || res.Trailer.Get("X-Sum") != "sum" {
			t.Errorf("%s: got %q, %v, trailer %v", res.Proto, b, err, res.Trailer)
		}
	}
}

// TestUnannouncedTrailer: an HTTP/2 upstream need not announce its trailer. Those of gRPC do not.
func TestUnannouncedTrailer(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "sum")
	}), func(c *Config) { c.Pools[0].Upstreams[0].Scheme = "h2c" })
	res, err := h2cClient(t).Get(g.url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(b) != "hello" || res.Trailer.Get("X-Sum") != "sum" {
		t.Errorf("got %q, %v, trailer %v", b, err, res.Trailer)
	}
}

// TestAnswerKeepsAnnouncedFields: what an upstream says in the head stays there, although it
// announces a trailer field of that name; and so does what the gateway says itself.
func TestAnswerKeepsAnnouncedFields(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nX-H: head\r\nTrailer: ETag, Server-Timing, X-H\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-H: tail\r\n\r\n")
		_ = conn.Close()
	}))
	for version, client := range map[string]*http.Client{"HTTP/1.1": g.client, "HTTP/2.0": h2cClient(t)} {
		res, err := client.Get(g.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.Header.Get("Etag") != `"x"` || res.Header.Get("X-H") != "head" || res.Header.Get("Server-Timing") == "" {
			t.Errorf("%s: head %v, %v", version, res.Header, err)
		}
		if got := res.Trailer.Values("X-H"); len(got) != 1 || got[0] != "tail" || res.Trailer.Get("Etag") != "" {
			t.Errorf("%s: trailer %v", version, res.Trailer)
		}
	}
}
