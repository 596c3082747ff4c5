package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
)

// read is what a reader makes of a message.
type read struct {
	method, target, host string
	status               int
	fields, trailer      string
	body                 string
	broken               bool // the body does not come to its end
	rest                 int  // bytes behind it
}

// ours reads a message: a request, or an answer to one with this method.
func ours(raw []byte, method string) (read, error) {
	var h Head
	var n int
	var f Framing
	var err error
	limits := Limits{Bytes: 64 << 10, Fields: 1000}
	if method == "" {
		if n, err = h.Request(raw, limits); n > 0 {
			f, err = h.RequestFraming()
		}
	} else if n, err = h.Response(raw, limits); n > 0 {
		f, err = h.ResponseFraming(method)
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return read{}, err
	}
	in := NewInput(bytes.NewReader(raw[n:]), 64<<10)
	var b Body
	b.Reset(in, f, limits)
	body, err := readAll(&b, 4<<10)
	rest, _ := io.ReadAll(in.src)
	r := read{
		method: string(h.Method()), target: string(h.target()), host: h.AuthorityIn(h.Text()), status: h.Status(),
		fields: fieldsOf(&h), trailer: fieldsOf(b.Trailer()), body: body, broken: err != nil, rest: len(rest) + in.Len(),
	}
	return r, nil
}

func fieldsOf(h *Head) string {
	if h == nil {
		return "map[]"
	}
	m := make(http.Header)
	for i := range h.Len() {
		switch h.ID(i) {
		case Host, TransferEncoding, Trailer, ContentLength, Connection: // net/http takes them out, or not
		default:
			m.Add(textproto.TrimString(h.NameIn(h.Text(), i)), string(h.value(i)))
		}
	}
	return fmt.Sprintf("%q", m)
}

// theirs does what ours does with net/http.
func theirs(raw []byte, method string) (read, error) {
	br := bufio.NewReaderSize(bytes.NewReader(raw), 64<<10)
	var r read
	var body io.Reader
	var header, trailer *http.Header
	if method == "" {
		req, err := http.ReadRequest(br)
		if err != nil {
			return r, err
		}
		r.method, r.target, r.host, body, header, trailer = req.Method, req.RequestURI, req.Host, req.Body, &req.Header, &req.Trailer
	} else {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return r, err
		}
		r.status, body, header, trailer = res.StatusCode, res.Body, &res.Header, &res.Trailer
		if res.StatusCode == http.StatusSwitchingProtocols || method == http.MethodConnect && res.StatusCode/100 == 2 {
			body = http.NoBody // it is a tunnel
		}
	}
	got, err := io.ReadAll(body)
	rest, _ := io.ReadAll(br)
	r.body, r.broken, r.rest = string(got), err != nil, len(rest)
	r.fields, r.trailer = headerOf(*header), headerOf(*trailer)
	return r, nil
}

func headerOf(header http.Header) string {
	m := make(http.Header)
	for name, values := range header {
		switch name {
		case "Host", "Transfer-Encoding", "Trailer", "Content-Length", "Connection":
		default:
			if len(values) > 0 {
				m[name] = values
			}
		}
	}
	if len(m) == 0 {
		return "map[]"
	}
	return fmt.Sprintf("%q", m)
}

// lenient are the reasons for which this package takes what net/http refuses.
func lenient(raw []byte, err error) bool {
	return strings.Contains(err.Error(), "invalid URL escape") || // package proxy judges targets
		strings.Contains(err.Error(), "parse ") || // by net/url
		strings.Contains(err.Error(), "invalid URI")
}

// FuzzRequest: what net/http refuses is refused; what both take is the same request, with the same
// end. What is written of it reads the same, and is one message to the strict reader.
func FuzzRequest(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.head))
	}
	for _, c := range framings {
		f.Add(fmt.Appendf(nil, "POST / HTTP/1.%d\r\nHost: h\r\n%s\r\n3\r\nabc\r\n0\r\n\r\n", c.minor, c.lines))
	}
	for _, c := range bodies {
		f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + c.sent))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ours(raw, "")
		want, theirErr := theirs(raw, "")
		if err != nil {
			return // the tables have the reasons
		}
		if theirErr != nil {
			if !lenient(raw, theirErr) {
				t.Fatalf("%q: net/http refuses it: %v", raw, theirErr)
			}
			return
		}
		differ(t, raw, got, want)
		rewritten(t, raw, got, "")
	})
}

// FuzzResponse is FuzzRequest for answers.
func FuzzResponse(f *testing.F) {
	for _, c := range answers {
		f.Add(uint8(0), []byte(c.head))
	}
	for i, c := range framings {
		f.Add(uint8(i), fmt.Appendf(nil, "HTTP/1.%d 200 OK\r\n%s\r\n3\r\nabc\r\n0\r\n\r\n", c.minor, c.lines))
	}
	for _, c := range bodies {
		f.Add(uint8(0), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"+c.sent))
	}
	f.Fuzz(func(t *testing.T, m uint8, raw []byte) {
		method := []string{"GET", "HEAD", "POST", "CONNECT"}[int(m)%4]
		got, err := ours(raw, method)
		want, theirErr := theirs(raw, method)
		if err != nil {
			return
		}
		if theirErr != nil {
			t.Fatalf("%s, %q: net/http refuses it: %v", method, raw, theirErr)
		}
		if method == "CONNECT" {
			return // net/http frames a body there
		}
		differ(t, raw, got, want)
		rewritten(t, raw, got, method)
	})
}

// differ holds what was read against what net/http reads.
func differ(t *testing.T, raw []byte, got, want read) {
	t.Helper()
	if got.broken {
		// The body may be refused by one of our rules: what comes before is the same.
		if !strings.HasPrefix(want.body, got.body) {
			t.Errorf("%q: the body begins with %q, and is %q", raw, got.body, want.body)
		}
		return
	}
	want.host = got.host // net/http takes a user off, or leaves it
	if got != want {
		t.Errorf("%q:\n got %+v\nwant %+v", raw, got, want)
	}
}

// rewritten writes a head anew, and has it read again, by this package and by the strict reader.
func rewritten(t *testing.T, raw []byte, was read, method string) {
	t.Helper()
	var h Head
	limits := Limits{Bytes: 64 << 10, Fields: 1000}
	var out []byte
	var f Framing
	var err error
	if method == "" {
		_, _ = h.Request(raw, limits)
		f, _ = h.RequestFraming()
		if out, err = AppendRequestLine(nil, h.Method(), h.target()); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
	} else {
		_, _ = h.Response(raw, limits)
		f, _ = h.ResponseFraming(method)
		out = AppendStatusLine(nil, h.Status())
	}
	for i := range h.Len() {
		switch h.ID(i) {
		case Connection, ContentLength, TransferEncoding, Trailer: // of the old message alone
		default:
			if out, err = AppendField(out, h.NameIn(h.Text(), i), h.value(i)); err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
		}
	}
	out = append(f.Append(out), "\r\n"...)
	head := len(out)
	if f.Kind == Chunked && !was.broken {
		if len(was.body) > 0 {
			buf := make([]byte, ChunkRoom+len(was.body)+ChunkEnd)
			copy(buf[ChunkRoom:], was.body)
			out = append(out, FrameChunk(buf, len(was.body))...)
		}
		out = append(out, LastChunk+"\r\n"...)
	} else {
		out = append(out, was.body...)
	}
	if method == "" && h.Find(Host) < 0 {
		return // HTTP/1.0: the caller writes one
	}
	if f.Kind == Tunnel || was.broken {
		return
	}
	again, err := ours(out, method)
	if err != nil || again.body != was.body || again.broken || again.rest > 0 || again.target != was.target || again.method != was.method {
		t.Errorf("%q is written as %q, which reads as %+v, %v", raw, out, again, err)
	}
	if err := strict(string(out[:head]), f, method); err != nil {
		t.Errorf("%q is written as %q: %v", raw, out, err)
	}
}

// strict is a second reader: line by line, in the one form that no two readers read differently.
func strict(head string, f Framing, method string) error {
	lines := strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")
	if strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00") {
		return errors.New("a line break or NUL within a line")
	}
	if words := strings.Split(lines[0], " "); method == "" && len(words) != 3 {
		return errors.New("a request line that is not three words")
	}
	lengths, codings, hosts := 0, 0, 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || name == "" || strings.ContainsAny(name, " \t:") || strings.Trim(value, " \t") != value {
			return fmt.Errorf("a line that can be read in two ways: %q", line)
		}
		switch strings.ToLower(name) {
		case "host":
			hosts++
		case "content-length":
			lengths++
			if value != fmt.Sprint(f.Length) {
				return fmt.Errorf("length %q", value)
			}
		case "transfer-encoding":
			codings++
			if value != "chunked" {
				return fmt.Errorf("coding %q", value)
			}
		}
	}
	switch {
	case method == "" && hosts != 1:
		return fmt.Errorf("%d hosts", hosts)
	case lengths+codings > 1, f.Kind == Chunked && codings != 1, f.Kind == Length && lengths != 1:
		return fmt.Errorf("%d lengths, %d codings", lengths, codings)
	}
	return nil
}
