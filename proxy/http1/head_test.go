package http1

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

var roomy = Limits{Bytes: 8 << 10, Fields: 100}

// requests are heads of requests, and the rule that refuses them; 0: none does.
var requests = []struct {
	name, head string
	rule       Rule
}{
	{"the least", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"no space behind a colon", "GET / HTTP/1.1\r\nHost:h\r\n\r\n", 0},
	{"tabs and spaces around a value", "GET / HTTP/1.1\r\nHost: h\r\nA:\t b \t \r\n\r\n", 0},
	{"an empty value", "GET / HTTP/1.1\r\nHost: h\r\nA:\r\n\r\n", 0},
	{"a value that is not ASCII", "GET / HTTP/1.1\r\nHost: h\r\nA: \xc3\xa9\xff\r\n\r\n", 0},
	{"a tab in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: a\tb\r\n\r\n", 0},
	{"any token for a name", "GET / HTTP/1.1\r\nHost: h\r\n!#$%&'*+-.^_`|~09azAZ: b\r\n\r\n", 0},
	{"a port", "GET / HTTP/1.1\r\nHost: h:8080\r\n\r\n", 0},
	{"no port behind a colon", "GET / HTTP/1.1\r\nHost: h:\r\n\r\n", 0},
	{"an address", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 0},
	{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 0},
	{"HTTP/1.0 with Host", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", 0},
	{"an absolute target", "GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"an absolute target in capitals", "GET HTTPS://H HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"an absolute target with a user", "GET http://u:p@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"CONNECT", "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 0},
	{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"any token for a method", "M-SEARCH / HTTP/1.1\r\nHost: h\r\n\r\n", 0},

	{"LF", "GET / HTTP/1.1\nHost: h\n\n", BareLF},
	{"LF behind a field", "GET / HTTP/1.1\r\nHost: h\n\r\n", BareLF},
	{"LF for the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", BareLF},
	{"an empty line in front", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"LF in front", "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", BareLF},
	{"CR in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc: d\r\n\r\n", BareCR},
	{"CR at the end of a value", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n\r\n", BareCR},
	{"CR in a name", "GET / HTTP/1.1\r\nHost: h\r\nA\rB: c\r\n\r\n", BareCR},
	{"CR for the end", "GET / HTTP/1.1\r\nHost: h\r\n\r\r\n\r\n", NoColon},
	{"CR alone", "GET / HTTP/1.1\rHost: h\r\r", 0},
	{"CR in the target", "GET /\ra HTTP/1.1\r\nHost: h\r\n\r\n", BadTarget},
	{"CR behind the version", "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", BadVersion},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: \x00\r\n\r\n", BadValue},
	{"NUL in a name", "GET / HTTP/1.1\r\nHost: h\r\nA\x00B: c\r\n\r\n", BadName},
	{"NUL in the target", "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", BadTarget},
	{"DEL in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: 12345678\x7f\r\n\r\n", BadValue},
	{"a vertical tab in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: \x0bchunked\r\n\r\n", BadValue},

	{"two spaces behind the method", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"two spaces behind the target", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"a space behind the version", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", BadRequestLine},
	{"a space in front", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", BadMethod},
	{"tabs", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"no target", "GET HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"an empty target", "GET  HTTP/1.1\r\nHost: h\r\n\r\n", BadRequestLine},
	{"no version", "GET /\r\nHost: h\r\n\r\n", BadRequestLine},
	{"a method that is no token", "GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", BadMethod},
	{"a version in small letters", "GET / http/1.1\r\nHost: h\r\n\r\n", BadVersion},
	{"a version without minor", "GET / HTTP/1\r\nHost: h\r\n\r\n", BadVersion},
	{"a version with zeros", "GET / HTTP/01.01\r\nHost: h\r\n\r\n", BadVersion},
	{"a version with a comma", "GET / HTTP/1,1\r\nHost: h\r\n\r\n", BadVersion},
	{"another protocol", "GET / HTPP/1.1\r\nHost: h\r\n\r\n", BadVersion},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", UnknownVersion},
	{"HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", UnknownVersion},
	{"HTTP/0.9", "GET / HTTP/0.9\r\n\r\n", UnknownVersion},

	{"a folded line", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", FoldedLine},
	{"a line of white space", "GET / HTTP/1.1\r\nHost: h\r\n \r\n\r\n", FoldedLine},
	{"a folded first field", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", FoldedLine},
	{"a tab in front of a name", "GET / HTTP/1.1\r\nHost: h\r\n\tA: b\r\n\r\n", FoldedLine},
	{"a space in front of a colon", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\n", SpaceBeforeColon},
	{"a tab in front of a colon", "GET / HTTP/1.1\r\nHost: h\r\nA\t: 5\r\n\r\n", SpaceBeforeColon},
	{"a space in a name", "GET / HTTP/1.1\r\nHost: h\r\nA B: c\r\n\r\n", BadName},
	{"brackets in a name", "GET / HTTP/1.1\r\nHost: h\r\n[A]: c\r\n\r\n", BadName},
	{"a name that is not ASCII", "GET / HTTP/1.1\r\nHost: h\r\n\xc3\xa9: c\r\n\r\n", BadName},
	{"no name", "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", NoName},
	{"no colon", "GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", NoColon},

	{"no Host", "GET / HTTP/1.1\r\n\r\n", NoHost},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", ManyHosts},
	{"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\nhost: i\r\n\r\n", ManyHosts},
	{"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", BadHost},
	{"an empty Host in HTTP/1.0", "GET / HTTP/1.0\r\nHost: \r\n\r\n", BadHost},
	{"a Host that is too long", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 256) + "\r\n\r\n", BadHost},
	{"the longest Host", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 255) + ":65535\r\n\r\n", 0},
	{"a list for a Host", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", BadHost},
	{"a Host with a user", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", BadHost},
	{"a Host with a path", "GET / HTTP/1.1\r\nHost: h/a\r\n\r\n", BadHost},
	{"a Host with two ports", "GET / HTTP/1.1\r\nHost: h:80:80\r\n\r\n", BadHost},
	{"a Host that is a port", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", BadHost},
	{"a port that is no number", "GET / HTTP/1.1\r\nHost: h:8o\r\n\r\n", BadHost},
	{"half an address", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", BadHost},
	{"something behind an address", "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n", BadHost},
	{"a name in brackets", "GET / HTTP/1.1\r\nHost: [h]\r\n\r\n", BadHost},
	{"an absolute target of another host", "GET http://i/ HTTP/1.1\r\nHost: h\r\n\r\n", OtherHost},
	{"an absolute target of another port", "GET http://h:80/ HTTP/1.1\r\nHost: h\r\n\r\n", OtherHost},
	{"an absolute target without a host", "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", BadHost},
	{"an absolute target with one slash", "GET http:/a HTTP/1.1\r\nHost: h\r\n\r\n", BadHost},
	{"an absolute target with one slash, in HTTP/1.0", "GET HTTPS:/a HTTP/1.0\r\n\r\n", BadHost},
	{"an absolute target without a slash", "GET http:?b HTTP/1.1\r\nHost: h\r\n\r\n", BadHost},
	{"CONNECT to a host named http", "CONNECT http:80 HTTP/1.1\r\nHost: http:80\r\n\r\n", 0},
	{"an absolute target with two users", "GET http://u@v@h/ HTTP/1.1\r\nHost: h\r\n\r\n", BadHost},

	{"a TLS record", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", BadMethod},
}

// TestRequest: each head is judged by its rule, at once and byte by byte, wherever its bytes
// stand.
func TestRequest(t *testing.T) {
	for _, c := range requests {
		t.Run(c.name, func(t *testing.T) {
			var whole, bytewise Head
			n, err := whole.Request([]byte(c.head), roomy)
			if got := ruleOf(err); got != c.rule {
				t.Fatalf("%q: %v, want %v", c.head, err, c.rule)
			}
			if c.rule == 0 && n != len(c.head) && c.name != "CR alone" {
				t.Fatalf("%q: %d bytes are read of %d", c.head, n, len(c.head))
			}
			var m int
			for i := 1; i <= len(c.head) && m == 0 && err == nil; i++ {
				m, err = bytewise.Request([]byte(c.head[:i]), roomy)
			}
			if c.rule == 0 && (m != n || err != nil || dump(&bytewise) != dump(&whole)) {
				t.Errorf("%q: byte by byte %d, %v, %s, want %d, %s", c.head, m, err, dump(&bytewise), n, dump(&whole))
			}
		})
	}
}

// TestBytewise: a head that is refused when it is whole is refused byte by byte, too, by the same
// rule.
func TestBytewise(t *testing.T) {
	for _, c := range requests {
		var h Head
		var err error
		for i := 1; i <= len(c.head) && err == nil; i++ {
			_, err = h.Request([]byte(c.head[:i]), roomy)
		}
		if got := ruleOf(err); got != c.rule {
			t.Errorf("%q: %v, want %v", c.head, err, c.rule)
		}
	}
}

func ruleOf(err error) Rule {
	r, _ := err.(Rule)
	return r
}

func dump(h *Head) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %d %d %q", h.Method(), h.target(), h.Status(), h.Minor(), h.at(h.first.reason))
	for i := range h.Len() {
		fmt.Fprintf(&b, " %q:%q", h.at(h.fields[i].name), h.value(i))
	}
	return b.String()
}

var answers = []struct {
	name, head string
	rule       Rule
}{
	{"the least", "HTTP/1.1 200 OK\r\n\r\n", 0},
	{"no reason", "HTTP/1.1 200 \r\n\r\n", 0},
	{"nothing behind the status", "HTTP/1.1 200\r\n\r\n", 0},
	{"HTTP/1.0", "HTTP/1.0 404 Not Found\r\nA: b\r\n\r\n", 0},
	{"a status beyond those that are known", "HTTP/1.1 999 Odd\r\n\r\n", 0},
	{"LF", "HTTP/1.1 200 OK\nA: b\n\n", BareLF},
	{"a status below 100", "HTTP/1.1 099 Odd\r\n\r\n", BadStatus},
	{"two digits", "HTTP/1.1 20 OK\r\n\r\n", BadStatus},
	{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", BadStatus},
	{"a sign", "HTTP/1.1 +20 OK\r\n\r\n", BadStatus},
	{"two spaces", "HTTP/1.1  200 OK\r\n\r\n", BadStatus},
	{"a tab", "HTTP/1.1\t200 OK\r\n\r\n", BadStatusLine},
	{"CR in the reason", "HTTP/1.1 200 O\rK\r\n\r\n", BareCR},
	{"NUL in the reason", "HTTP/1.1 200 O\x00K\r\n\r\n", BadValue},
	{"HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n", UnknownVersion},
	{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", UnknownVersion},
	{"another protocol", "SSH-2.0-OpenSSH\r\n", BadStatusLine},
	{"an empty line", "\r\n\r\n", BadStatusLine},
	{"a folded line", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", FoldedLine},
	{"a space in front of a colon", "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n", SpaceBeforeColon},
	{"a name with a space", "HTTP/1.1 200 OK\r\nBad Name: a\r\n\r\n", BadName},
	{"no colon", "HTTP/1.1 200 OK\r\nA\r\n\r\n", NoColon},
}

// TestResponse is TestRequest for answers.
func TestResponse(t *testing.T) {
	for _, c := range answers {
		t.Run(c.name, func(t *testing.T) {
			var whole, bytewise Head
			n, err := whole.Response([]byte(c.head), roomy)
			if got := ruleOf(err); got != c.rule || c.rule == 0 && n != len(c.head) {
				t.Fatalf("%q: %d, %v, want %v", c.head, n, err, c.rule)
			}
			err = nil
			for i := 1; i <= len(c.head) && err == nil; i++ {
				_, err = bytewise.Response([]byte(c.head[:i]), roomy)
			}
			if early := ruleOf(err); (early != 0) != (c.rule != 0) || c.rule == 0 && dump(&bytewise) != dump(&whole) {
				t.Errorf("%q: byte by byte %v, %s, want %s", c.head, err, dump(&bytewise), dump(&whole))
			}
		})
	}
}

// TestLimits: a head is refused as soon as it can no longer keep its limits.
func TestLimits(t *testing.T) {
	head := []byte("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n")
	for _, c := range []struct {
		bytes, fields, come int
		rule                Rule
	}{
		{len(head), 2, len(head), 0},
		{len(head) - 1, 2, len(head), HeadTooLarge},
		{len(head) - 1, 2, len(head) - 1, HeadTooLarge},
		{len(head), 2, len(head) - 1, 0},
		{len(head), 1, len(head), TooManyFields},
		{10, 2, 10, TargetTooLong},
		{10, 2, 9, 0},
		{3, 2, 3, BadMethod},
	} {
		var h Head
		_, err := h.Request(head[:c.come], Limits{Bytes: c.bytes, Fields: c.fields})
		if got := ruleOf(err); got != c.rule {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// What follows the head does not count.
	var h Head
	if n, err := h.Request(append(bytes.Clone(head), make([]byte, 100)...), Limits{len(head), 2}); n != len(head) || err != nil {
		t.Errorf("with a body: %d, %v", n, err)
	}
}

// TestFields: what a head tells of its fields.
func TestFields(t *testing.T) {
	var h Head
	raw := []byte("GET /a HTTP/1.1\r\nhOsT: h\r\nConnection: close, X-Gone ,\r\nconnection: Host\r\nX-Gone: 1\r\nx-gone: 2\r\nKeep-Alive: 5\r\n" +
		"Accept: a, B ,c\r\nContent-Length: 3\r\nX-Stays: \t1 \r\nConnection: x-none\r\n\r\n")
	if _, err := h.Request(raw, roomy); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{"b": true, "a": true, "C": true, "a, b": false, "": false, "bc": false} {
		if h.HasToken(Accept, token) != want {
			t.Errorf("Accept has %q: %v", token, !want)
		}
	}
	if h.Find(Connection) != 1 || h.Find(Cookie) >= 0 || h.AuthorityIn(h.Text()) != "h" {
		t.Error("a field is found that is not there, or the other way round")
	}
	kept, want := h.clone(), dump(&h)
	clear(raw)
	h.Reset()
	if h.Len() != 0 || dump(kept) != want {
		t.Errorf("the copy is %s, want %s", dump(kept), want)
	}
}

const browser = "GET /search?q=kgate&page=2 HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n" +
	"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Accept-Language: en-US,en;q=0.9\r\nCookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n"

func BenchmarkRequest(b *testing.B) {
	for name, raw := range map[string]string{"plain": requests[0].head, "browser": browser} {
		b.Run(name, func(b *testing.B) {
			var h Head
			in := []byte(raw)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				h.Reset()
				if n, err := h.Request(in, roomy); n == 0 || err != nil {
					b.Fatal(err)
				}
				if _, err := h.RequestFraming(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
