package upstream

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/kgate/kgate/proxy/http1/adapt"
)

// written returns what a server gets of req.
func written(t testing.TB, req *http.Request) (string, error) {
	t.Helper()
	got := make(chan string, 1)
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		var b bytes.Buffer
		r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(br, &b)))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		got <- b.String()
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	c := newClient(t, s.addr)
	if _, err := get(t, c, req); err != nil {
		return "", err
	}
	return <-got, nil
}

// TestRequest: what is sent, to the byte.
func TestRequest(t *testing.T) {
	chunked := request(t, "POST", io.NopCloser(strings.NewReader("hello")), "Transfer-Encoding", "gzip", "Content-Length", "99")
	chunked.ContentLength = -1
	chunked.Trailer = http.Header{"X-Sum": {"1"}, "A": {"2"}}
	known := request(t, "PUT", strings.NewReader("hello"), "Content-Length", "3", "Trailer", "X-Evil")
	named := request(t, "GET", nil, "B", "2", "A", "1", "B", "3", "Host", "evil")
	named.Host = "example.com:8080"
	for _, tt := range []struct {
		req  *http.Request
		want string
	}{
		{request(t, "GET", nil), "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"},
		{named, "GET /x HTTP/1.1\r\nHost: example.com:8080\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\n"},
		{request(t, "DELETE", nil), "DELETE /x HTTP/1.1\r\nHost: h\r\n\r\n"},
		{request(t, "POST", nil), "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		{known, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"},
	} {
		if got, err := written(t, tt.req); err != nil || got != tt.want {
			t.Errorf("got %q, %v, want %q", got, err, tt.want)
		}
	}
	got, err := written(t, chunked)
	const head = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A,X-Sum\r\n\r\n5\r\nhello\r\n0\r\n"
	if err != nil || !strings.HasPrefix(got, head) || !strings.Contains(got, "X-Sum: 1\r\n") || !strings.Contains(got, "A: 2\r\n") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestRequestRefused: what would be read as something else is not sent.
func TestRequestRefused(t *testing.T) {
	for name, spoil := range map[string]func(*http.Request){
		"method":      func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX:" },
		"no method":   func(r *http.Request) { r.Method = "" },
		"target":      func(r *http.Request) { r.URL.Opaque = "/ HTTP/1.1\r\nX: y" },
		"query":       func(r *http.Request) { r.URL.RawQuery = "a b" },
		"host":        func(r *http.Request) { r.Host = "h\r\nX: y" },
		"host, space": func(r *http.Request) { r.Host = "h x" },
		"name":        func(r *http.Request) { r.Header["A: b\r\nC"] = []string{"d"} },
		"empty name":  func(r *http.Request) { r.Header[""] = []string{"d"} },
		"value":       func(r *http.Request) { r.Header["A"] = []string{"b\r\nC: d"} },
		"NUL":         func(r *http.Request) { r.Header["A"] = []string{"b\x00"} },
		"trailer": func(r *http.Request) {
			r.Method, r.Body, r.Trailer = "POST", io.NopCloser(strings.NewReader("x")), http.Header{"Content-Length": nil}
		},
	} {
		req := request(t, "GET", nil)
		spoil(req)
		s := serve(t, func(_ net.Conn, br *bufio.Reader) {
			if b, _ := br.Peek(1); len(b) > 0 {
				t.Errorf("%s: something was sent", name)
			}
		})
		c := newClient(t, s.addr)
		if _, err := get(t, c, req); err == nil {
			t.Errorf("%s: sent", name)
		}
		c.CloseIdle()
	}
}

// FuzzRequest: whatever net/http lets in goes out as one request that reads the
// same.
func FuzzRequest(f *testing.F) {
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET http://h/%zz/..%2f?a#b HTTP/1.1\r\nHost: x\r\nA:  b \r\n\r\n",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		in, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		if in.URL.Host == "" {
			in.URL.Host = "h"
		}
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return
		}
		out := httptest.NewRequest("GET", "/", nil)
		out.Method, out.URL, out.Host, out.Header, out.Trailer, out.ContentLength = in.Method, in.URL, in.Host, in.Header, in.Trailer, in.ContentLength
		out.Body = http.NoBody
		if in.ContentLength != 0 {
			out.Body = io.NopCloser(bytes.NewReader(body))
		}
		near, far := net.Pipe()
		var sent bytes.Buffer
		done := make(chan struct{})
		go func() { _, _ = io.Copy(&sent, far); close(done) }()
		c := New(Config{Scheme: "http"})
		h := newHTTP1(&c.cfg, newConn(near, c.cfg.Standing, 1, c.forget), near, c.keep)
		req := &Request{Request: *out, Fields: adapt.Fields(out.Header)}
		b, err := h.appendRequest(nil, req)
		if err == nil {
			_, _ = near.Write(b)
			if hasBody(req) {
				err = newUpload(h, req, new(plain)).send()
			}
		}
		_ = near.Close()
		<-done
		if err != nil {
			return
		}
		br := bufio.NewReader(&sent)
		again, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q went out as %q: %v", raw, sent.String(), err)
		}
		body2, err := io.ReadAll(again.Body)
		if err != nil || !bytes.Equal(body, body2) || again.Method != in.Method || again.RequestURI != out.URL.RequestURI() {
			t.Errorf("%q went out with %q, %v as %q %q", raw, body2, err, again.Method, again.RequestURI)
		}
		for _, name := range []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"} {
			delete(in.Header, name)
			delete(again.Header, name)
		}
		if !reflect.DeepEqual(trimmed(in.Header), trimmed(again.Header)) {
			t.Errorf("%q: header %q, want %q", raw, again.Header, in.Header)
		}
		if rest, _ := io.ReadAll(br); len(rest) > 0 {
			t.Errorf("%q: %q follows", raw, rest)
		}
	})
}

// trimmed returns h with the space around its values removed, as it is when a
// value is read, and without the fields that have none.
func trimmed(h http.Header) http.Header {
	out := make(http.Header)
	for name, values := range h {
		for _, v := range values {
			out.Add(name, strings.Trim(v, " \t"))
		}
	}
	return out
}
