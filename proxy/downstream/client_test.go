package downstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// handlerFunc is a Handler of HTTP.
type handlerFunc http.HandlerFunc

func (f handlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }
func (handlerFunc) ServeConn(_ context.Context, conn *Conn, _ string)  { _ = conn.Close() }
func (handlerFunc) Close()                                             {}

// pipe is a client of a server in virtual time.
type pipe struct {
	net.Conn
	br     *bufio.Reader
	t      *testing.T
	limits *limiter
	conn   *Conn
}

// newPipe connects a client with a server that answers by f.
func newPipe(t *testing.T, cfg Config, f http.HandlerFunc) *pipe {
	t.Helper()
	cfg.Handler = handlerFunc(f)
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	watch, err := newDisconnectWatch(s.clients)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{limiter: s.limiter, clients: s.clients, watch: watch, headerTime: s.cfg.ReadHeaderTimeout, stallTime: s.cfg.StallTimeout, base: s.base}
	c := &Conn{Conn: far, raw: far, listener: l}
	c.entry.conn = c
	client := near
	if cfg.TLS != nil {
		c.tls = tls.Server(c, cfg.TLS)
		client = tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	}
	s.limiter.enter(&c.entry, l)
	s.clients.add(c)
	go s.serveClient(c)
	t.Cleanup(func() {
		_ = near.Close()
		s.abort()
		_ = c.close()
		watch.close()
	})
	return &pipe{Conn: client, br: bufio.NewReader(client), t: t, limits: s.limiter, conn: c}
}

func (p *pipe) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Conn, text); err != nil {
		p.t.Error(err)
	}
}

// answer reads an answer with its body: status, body, whether the connection ends behind it.
func (p *pipe) answer() string {
	p.t.Helper()
	res, err := http.ReadResponse(p.br, nil)
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	end := ""
	if res.Close {
		end = ", close"
	}
	return fmt.Sprintf("%d %s%s", res.StatusCode, body, end)
}

// ends returns after what time the server closes the connection.
func (p *pipe) ends() time.Duration {
	began := time.Now()
	_, _ = io.Copy(io.Discard, p.br)
	return time.Since(began)
}

// echo answers with the path and the body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s%s", r.URL.Path, body)
}

const header = " HTTP/1.1\r\nHost: h\r\n"

// TestRequestsInTurn: requests that come together, in pieces or with bodies are answered in turn.
func TestRequestsInTurn(t *testing.T) {
	const sent = "GET /a" + header + "\r\n" + "POST /b" + header + "Content-Length: 2\r\n\r\nxy" +
		"POST /c" + header + "Transfer-Encoding: chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n" + "GET /d" + header + "\r\n"
	for _, size := range []int{1, 7, len(sent)} {
		p := newPipe(t, Config{}, echo)
		go func() {
			for rest := sent; rest != ""; {
				n := min(size, len(rest))
				p.send(rest[:n])
				rest = rest[n:]
			}
		}()
		for _, want := range []string{"200 /a", "200 /bxy", "200 /cz", "200 /d"} {
			if got := p.answer(); got != want {
				t.Fatalf("in pieces of %d: got %q, want %q", size, got, want)
			}
		}
	}
}

// TestEndTakesNobody: when the server ends, an answer says that it is the last one only if no
// request has come behind it, and half a request has its time.
func TestEndTakesNobody(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	p := newPipe(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			close(begun)
			<-proceed
		}
		echo(w, r)
	})
	go p.send("GET /a" + header + "\r\nGET /b" + header + "\r\nGET /c HT")
	<-begun
	p.limits.windDown(lastRequestTime)
	close(proceed)
	for _, want := range []string{"200 /a", "200 /b"} {
		if got := p.answer(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	p.send("TP/1.1\r\nHost: h\r\n\r\n")
	if got := p.answer(); got != "200 /c, close" {
		t.Errorf("got %q", got)
	}
	if took := p.ends(); took > patience {
		t.Errorf("the connection ends after %v", took)
	}
}

const patience = 10 * time.Second

// TestRefused: what is no request is answered, and nothing behind it is.
func TestRefused(t *testing.T) {
	for sent, want := range map[string]string{
		"GET /\r\n\r\n":             "400",
		"GET / HTTP/1.1\r\n\r\n":    "400",
		"GET / HTTP/3.0\r\n\r\n":    "505",
		"GET /" + header[:9] + "\n": "400",
		"\x00GT":                    "400",
		"\x16\x03\x01":              "400",
		"POST /" + header + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": "400",
		"POST /" + header + "Transfer-Encoding: gzip\r\n\r\n":                         "501",
		"GET /" + header + "Expect: x\r\n\r\n":                                        "417",
		"GET /" + strings.Repeat("x", 600) + header + "\r\n":                          "414",
		"GET /" + header + "X: " + strings.Repeat("x", 600) + "\r\n\r\n":              "431",
	} {
		p := newPipe(t, Config{MaxHeaderBytes: 512}, func(http.ResponseWriter, *http.Request) { t.Errorf("%q is served", sent) })
		go func() { _, _ = io.WriteString(p.Conn, sent) }()
		got := p.answer()
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", close") {
			t.Errorf("%.60q: got %q, want %s", sent, got, want)
		}
	}
}

// TestAnswers: how an answer is framed, and when the connection ends behind it.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		request string
		do      func(w http.ResponseWriter)
		want    []string // parts of what comes
		never   string
	}{
		"empty":    {"GET /" + header, func(http.ResponseWriter) {}, []string{"200 OK", "Content-Length: 0\r\n"}, "Connection"},
		"short":    {"GET /" + header, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "ab") }, []string{"Content-Length: 2\r\n", "\r\n\r\nab"}, "Transfer"},
		"long":     {"GET /" + header, func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) }, []string{"Transfer-Encoding: chunked\r\n", "\r\n8000\r\nx", "x\r\n0\r\n\r\n"}, "Content-Length"},
		"1.0":      {"GET / HTTP/1.0\r\n", func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) }, []string{"Connection: close\r\n"}, "chunked"},
		"flushed":  {"GET /" + header, func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, []string{"chunked\r\n", "\r\n\r\n0\r\n\r\n"}, "Content-Length"},
		"204":      {"GET /" + header, func(w http.ResponseWriter) { w.WriteHeader(204) }, []string{"204 No Content\r\n"}, "Content-Length"},
		"HEAD":     {"HEAD /" + header, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "ab") }, []string{"Content-Length: 2\r\n"}, "ab"},
		"1xx":      {"GET /" + header, func(w http.ResponseWriter) { w.WriteHeader(103) }, []string{"103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK"}, "Connection"},
		"too much": {"GET /" + header, func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1"); _, _ = io.WriteString(w, "ab") }, []string{"Content-Length: 1\r\n"}, "ab"},
		"a trailer": {"GET /" + header, func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "ab")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "7")
		}, []string{"Trailer: X-Sum\r\n", "\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n"}, "Content-Length"},
		"a body is not read": {"POST /" + header + "Content-Length: 5\r\n", func(w http.ResponseWriter) { w.WriteHeader(404) }, []string{"Connection: close\r\n"}, "chunked"},
		"a line break":       {"GET /" + header, func(w http.ResponseWriter) { w.Header().Set("X", "a\r\nB: c") }, []string{"500 Internal", "Connection: close\r\n"}, "B: c"},
		"it panics":          {"GET /" + header, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "ab"); panic(http.ErrAbortHandler) }, nil, "HTTP"},
	} {
		p := newPipe(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { c.do(w) })
		go p.send(c.request + "\r\n")
		_ = p.SetReadDeadline(time.Now().Add(10 * time.Second))
		var b []byte
		for piece := make([]byte, 4<<10); ; {
			n, err := p.br.Read(piece)
			b = append(b, piece[:n]...)
			if err != nil {
				break
			}
			if c.want != nil && !slices.ContainsFunc(c.want, func(part string) bool { return !bytes.Contains(b, []byte(part)) }) {
				_ = p.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // for what must not come
			}
		}
		for _, part := range c.want {
			if !strings.Contains(string(b), part) {
				t.Errorf("%s: no %q in %.300q", name, part, b)
			}
		}
		if strings.Contains(string(b), c.never) {
			t.Errorf("%s: %q in %.300q", name, c.never, b)
		}
	}
}

// TestGoodbyeIsShort: a client that reads its answer, and not TLS's goodbye behind it, does not keep
// its place for the 5 s that crypto/tls gives it.
func TestGoodbyeIsShort(t *testing.T) {
	files := pairFiles{t: t}
	certificate, key := files.make(1, "h")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	p := newPipe(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}}, echo)
	go p.send("GET /a" + header + "Connection: close\r\n\r\n")
	if got := p.answer(); got != "200 /a, close" {
		t.Errorf("got %q", got)
	}
	for began := time.Now(); p.limits.connections() > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 4*time.Second {
			t.Fatal("the connection is still open")
		}
	}
}
