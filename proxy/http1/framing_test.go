package http1

import (
	"fmt"
	"testing"
)

var (
	none     = Framing{Persists: true}
	empty    = Framing{Sized: true, Persists: true}
	three    = Framing{Kind: Length, Length: 3, Sized: true, Persists: true}
	chunks   = Framing{Kind: Chunked, Persists: true}
	untilEnd = Framing{Kind: UntilClose}
	tunnel   = Framing{Kind: Tunnel}
)

func (f Framing) last() Framing {
	f.Persists = false
	return f
}

// framings are the lines of a head, what frames a request that has them and what frames an answer
// to GET, and the rule that refuses both.
var framings = []struct {
	minor         int
	lines         string
	request, made Framing
	rule          Rule
}{
	{1, "", none, untilEnd, 0},
	{0, "", none.last(), untilEnd, 0},
	{1, "Content-Length: 3\r\n", three, three, 0},
	{1, "content-length:3\r\n", three, three, 0},
	{1, "Content-Length: \t3 \r\n", three, three, 0},
	{0, "Content-Length: 3\r\n", three.last(), three.last(), 0},
	{0, "Content-Length: 3\r\nConnection: Keep-Alive\r\n", three, three, 0},
	{1, "Content-Length: 3\r\nConnection: a, CLOSE\r\n", three.last(), three.last(), 0},
	{0, "Content-Length: 3\r\nConnection: keep-alive\r\nConnection: close\r\n", three.last(), three.last(), 0},
	{1, "Content-Length: 0\r\n", empty, empty, 0},
	{1, "Transfer-Encoding: chunked\r\n", chunks, chunks, 0},
	{1, "TRANSFER-ENCODING: Chunked\r\n", chunks, chunks, 0},
	{1, "Transfer-Encoding: chunked \r\n", chunks, chunks, 0},
	{1, "Transfer_Encoding: chunked\r\nContent_Length: 3\r\n", none, untilEnd, 0}, // other names

	{1, "Trailer: Content-Length\r\n", none, untilEnd, 0}, // there is none
	{1, "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Contents\r\n", chunks, chunks, 0},

	{rule: BadTrailer, minor: 1, lines: "Transfer-Encoding: chunked\r\nTrailer: X-Sum, content-length\r\n"},
	{rule: BadTrailer, minor: 1, lines: "Transfer-Encoding: chunked\r\nTrailer: Trailer\r\n"},
	{rule: LengthAndCoding, minor: 1, lines: "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"},
	{rule: LengthAndCoding, minor: 1, lines: "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"},
	{rule: LengthAndCoding, minor: 1, lines: "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n"},
	{rule: LengthAndCoding, minor: 0, lines: "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"},
	{rule: CodingInHTTP10, minor: 0, lines: "Transfer-Encoding: chunked\r\n"},
	{rule: CodingInHTTP10, minor: 0, lines: "Transfer-Encoding: gzip\r\n"},
	{rule: ManyCodings, minor: 1, lines: "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"},
	{rule: ManyCodings, minor: 1, lines: "Transfer-Encoding: gzip\r\nX: y\r\ntransfer-encoding: chunked\r\n"},
	{rule: UnknownCoding, minor: 1, lines: "Transfer-Encoding: gzip, chunked\r\n"},
	{rule: UnknownCoding, minor: 1, lines: "Transfer-Encoding: gzip\r\n"},
	{rule: UnknownCoding, minor: 1, lines: "Transfer-Encoding: identity\r\n"},
	{rule: UnknownCoding, minor: 1, lines: "Transfer-Encoding: xchunked\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: chunked, gzip\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: chunked, chunked\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: chunked,\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: ,chunked\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: chunked;a=b\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding: \"chunked\"\r\n"},
	{rule: BadCoding, minor: 1, lines: "Transfer-Encoding:\r\n"},
	{rule: ManyLengths, minor: 1, lines: "Content-Length: 3\r\nContent-Length: 4\r\n"},
	{rule: ManyLengths, minor: 1, lines: "Content-Length: 3\r\nContent-Length: 3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 3, 3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 3, 4\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length:\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: -3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: +3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 03\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 00\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: -0\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 0x3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 3 3\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 1_0\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 3a\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 3.0\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: \xef\xbc\x93\r\n"},
	{rule: BadLength, minor: 1, lines: "Content-Length: 99999999999999999999\r\n"},
}

// TestFraming: where a body ends is the same question in both directions.
func TestFraming(t *testing.T) {
	for _, c := range framings {
		head := fmt.Sprintf("HTTP/1.%d\r\nHost: h\r\n%s\r\n", c.minor, c.lines)
		var request, answer Head
		if n, err := request.Request([]byte("GET / "+head), roomy); n == 0 || err != nil {
			t.Fatalf("%q: %v", c.lines, err)
		}
		if n, err := answer.Response([]byte(head[:8]+" 200 OK"+head[8:]), roomy); n == 0 || err != nil {
			t.Fatalf("%q: %v", c.lines, err)
		}
		if f, err := request.RequestFraming(); f != c.request || ruleOf(err) != c.rule {
			t.Errorf("HTTP/1.%d, %q: a request has %+v, %v, want %+v, %v", c.minor, c.lines, f, err, c.request, c.rule)
		}
		if f, err := answer.ResponseFraming("GET"); f != c.made || ruleOf(err) != c.rule {
			t.Errorf("HTTP/1.%d, %q: an answer has %+v, %v, want %+v, %v", c.minor, c.lines, f, err, c.made, c.rule)
		}
	}
}

// TestAnswersWithoutBody: what an answer's status and its request's method say of a body.
func TestAnswersWithoutBody(t *testing.T) {
	noneSized := Framing{Kind: None, Length: 3, Sized: true, Persists: true}
	for _, c := range []struct {
		method string
		status int
		lines  string
		want   Framing
		rule   Rule
	}{
		{"HEAD", 200, "Content-Length: 3\r\n", noneSized, 0},
		{"HEAD", 200, "", none, 0},
		{"HEAD", 200, "Transfer-Encoding: chunked\r\n", none, 0},
		{"head", 200, "", untilEnd, 0},
		{"GET", 304, "Content-Length: 3\r\n", noneSized, 0},
		{"GET", 304, "Connection: close\r\n", none.last(), 0},
		{"GET", 204, "", none, 0},
		{"GET", 204, "Content-Length: 3\r\n", none, 0},
		{"GET", 204, "Transfer-Encoding: chunked\r\n", none, 0},
		{"GET", 205, "", untilEnd, 0},
		{"GET", 100, "Content-Length: 3\r\n", none, 0},
		{"GET", 103, "", none, 0},
		{"GET", 101, "", tunnel, 0},
		{"HEAD", 101, "Content-Length: 3\r\n", tunnel, 0},
		{"CONNECT", 200, "Content-Length: 3\r\n", tunnel, 0},
		{"CONNECT", 299, "", tunnel, 0},
		{"CONNECT", 300, "", untilEnd, 0},
		{"CONNECT", 403, "Content-Length: 3\r\n", three, 0},
		{"HEAD", 200, "Content-Length: 3, 4\r\n", Framing{}, BadLength},
		{"GET", 204, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", Framing{}, LengthAndCoding},
		{"GET", 304, "Transfer-Encoding: gzip\r\n", Framing{}, UnknownCoding},
	} {
		var h Head
		if n, err := h.Response(fmt.Appendf(nil, "HTTP/1.1 %d X\r\n%s\r\n", c.status, c.lines), roomy); n == 0 || err != nil {
			t.Fatal(n, err)
		}
		if f, err := h.ResponseFraming(c.method); f != c.want || ruleOf(err) != c.rule {
			t.Errorf("%s, %d, %q: %+v, %v, want %+v, %v", c.method, c.status, c.lines, f, err, c.want, c.rule)
		}
	}
}
