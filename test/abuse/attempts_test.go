package abuse

import "strings"

// attempt is something that a client sends and that must reach the upstream as
// one request, or not at all.
type attempt struct {
	name string
	// sent over HTTP/1.1; a line break is CRLF, \n is a bare LF.
	sent string
	// or, over HTTP/2, the header fields and, if not empty, the body and trailers.
	fields, trailers [][2]string
	body             string
	// breaks: it goes wrong behind the header, when the upstream may have seen
	// some of it.
	breaks bool
}

// h1 is a request whose lines end with CRLF.
func h1(lines ...string) string { return strings.Join(lines, "\r\n") }

// get is a GET request with these header lines.
func get(lines ...string) string {
	return h1(append(append([]string{"GET / HTTP/1.1", "Host: kgate.test"}, lines...), "", "")...)
}

// post is a POST request with these header lines and this body.
func post(body string, lines ...string) string {
	return h1(append(append([]string{"POST / HTTP/1.1", "Host: kgate.test"}, lines...), "", body)...)
}

// h2 is the header of an HTTP/2 request.
func h2(method string, more ...[2]string) [][2]string {
	return append([][2]string{{":method", method}, {":scheme", "http"}, {":authority", "kgate.test"}, {":path", "/"}}, more...)
}

// smuggled hides in a body.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: kgate.test\r\n\r\n"

var framing = []attempt{
	{name: "an honest GET", sent: get()},
	{name: "an honest POST", sent: post("hello", "Content-Length: 5")},
	{name: "CL.TE", sent: post("0\r\n\r\nG", "Content-Length: 6", "Transfer-Encoding: chunked")},
	{name: "CL.TE, a whole request behind", sent: post("0\r\n\r\n"+smuggled, "Content-Length: 49", "Transfer-Encoding: chunked")},
	{name: "TE.CL", sent: post("2c\r\n"+smuggled+"\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Length: 4")},
	{name: "TE.TE, two lines", sent: post("0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: identity")},
	{name: "TE.TE, a list", sent: post("0\r\n\r\n", "Transfer-Encoding: identity, chunked")},
	{name: "TE.TE, an unknown coding", sent: post("0\r\n\r\n", "Transfer-Encoding: xchunked", "Content-Length: 5")},
	{name: "TE.TE, gzip first", sent: post("0\r\n\r\n", "Transfer-Encoding: gzip, chunked")},
	{name: "TE.TE, space before the colon", sent: post("0\r\n\r\n", "Transfer-Encoding : chunked", "Content-Length: 5")},
	{name: "TE.TE, tab before the value", sent: post("0\r\n\r\n", "Transfer-Encoding:\tchunked")},
	{name: "TE.TE, vertical tab before the value", sent: post("0\r\n\r\n", "Transfer-Encoding: \vchunked", "Content-Length: 5")},
	{name: "TE.TE, quoted", sent: post("0\r\n\r\n", `Transfer-Encoding: "chunked"`, "Content-Length: 5")},
	{name: "TE.TE, upper case", sent: post("0\r\n\r\n", "TRANSFER-ENCODING: CHUNKED")},
	{name: "Transfer_Encoding", sent: post("hello", "Transfer_Encoding: chunked", "Content-Length: 5")},
	{name: "Transfer-Encoding in HTTP/1.0", sent: h1("POST / HTTP/1.0", "Host: kgate.test", "Connection: keep-alive", "Transfer-Encoding: chunked", "", smuggled)},
	{name: "Transfer-Encoding and a length in HTTP/1.0", sent: h1("POST / HTTP/1.0", "Host: kgate.test", "Connection: keep-alive", "Transfer-Encoding: chunked", "Content-Length: 5", "", "0\r\n\r\n"+smuggled)},
	{name: "two requests of HTTP/1.0 in one write", sent: h1("GET / HTTP/1.0", "Host: kgate.test", "Connection: keep-alive", "", smuggled)},
	{name: "two lengths, the same", sent: post("hello", "Content-Length: 5", "Content-Length: 5")},
	{name: "two lengths, two values", sent: post("hello", "Content-Length: 5", "Content-Length: 0")},
	{name: "a list of lengths", sent: post("hello", "Content-Length: 5, 5")},
	{name: "a length with a sign", sent: post("hello", "Content-Length: +5")},
	{name: "a negative length", sent: post("", "Content-Length: -1")},
	{name: "a length in hex", sent: post("hello", "Content-Length: 0x5")},
	{name: "a length that overflows", sent: post("hello", "Content-Length: 18446744073709551621")},
	{name: "a length of nothing", sent: post("hello", "Content-Length:")},
	{name: "space before the colon of a length", sent: post("hello", "Content-Length : 5")},
	{name: "obs-fold", sent: get("X-Test: a", " b")},
	{name: "obs-fold that hides a length", sent: post("hello", "X-Test: a", " Content-Length: 0", "Content-Length: 5")},
	{name: "obs-fold in the first line", sent: h1("GET / HTTP/1.1", " Host: kgate.test", "Host: kgate.test", "", "")},
	{name: "bare LF between headers", sent: "GET / HTTP/1.1\nHost: kgate.test\nX-Test: a\n\n"},
	{name: "bare LF that ends the header", sent: "GET / HTTP/1.1\r\nHost: kgate.test\n\n"},
	{name: "bare LF in a value", sent: get("X-Test: a\nKgate-Fence: pool/1/1")},
	{name: "bare CR in a value", sent: get("X-Test: a\rKgate-Fence: pool/1/1")},
	{name: "bare CR in the request line", sent: "GET / HTTP/1.1\rHost: other.test\r\nHost: kgate.test\r\n\r\n"},
	{name: "NUL in a value", sent: get("X-Test: a\x00b")},
	{name: "NUL in a name", sent: get("X-Te\x00st: a")},
	{name: "NUL in the path", sent: h1("GET /\x00 HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "a header line without colon", sent: get("X-Test")},
	{name: "a header without name", sent: get(": a")},
	{name: "space in a name", sent: get("X Test: a")},
	{name: "chunk extension", sent: post("5;a=b\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk extension with a bare LF", breaks: true, sent: post("5;a\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk that ends with a bare LF", breaks: true, sent: post("5\r\nhello\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk size with a bare CR", breaks: true, sent: post("5\rX\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk size with a sign", breaks: true, sent: post("+5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk size that overflows", breaks: true, sent: post("10000000000000005\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "chunk that is longer than its size", breaks: true, sent: post("4\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "a GET with a body", sent: h1("GET / HTTP/1.1", "Host: kgate.test", "Content-Length: 44", "", smuggled)},
	{name: "two requests in one write", sent: get() + smuggled},
}

var routing = []attempt{
	{name: "absolute form", sent: h1("GET http://kgate.test/a?b HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "absolute form of another host", sent: h1("GET http://other.test/a HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "no Host", sent: h1("GET / HTTP/1.1", "", "")},
	{name: "Host twice", sent: get("Host: other.test")},
	{name: "Host that is empty", sent: h1("GET / HTTP/1.1", "Host:", "", "")},
	{name: "Host with a space", sent: h1("GET / HTTP/1.1", "Host: kgate.test other.test", "", "")},
	{name: "Host with a path", sent: h1("GET / HTTP/1.1", "Host: kgate.test/smuggled", "", "")},
	{name: "dot segments", sent: h1("GET /a/../b HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "encoded dot segments", sent: h1("GET /a/%2e%2e/b HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "encoded line break in the path", sent: h1("GET /a%0d%0aX-Test:%20b HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "space in the path", sent: h1("GET /a b HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "a path without slash", sent: h1("GET a HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "CONNECT", sent: h1("CONNECT other.test:443 HTTP/1.1", "Host: other.test:443", "", "")},
	{name: "TRACE", sent: h1("TRACE / HTTP/1.1", "Host: kgate.test", "Cookie: secret", "", "")},
	{name: "CONNECT, a request behind", sent: h1("CONNECT other.test:443 HTTP/1.1", "Host: other.test:443", "", smuggled)},
	{name: "a method in small letters", sent: h1("post / HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "OPTIONS *", sent: h1("OPTIONS * HTTP/1.1", "Host: kgate.test", "", "")},
	{name: "a method with a line break", sent: "GE\r\nT / HTTP/1.1\r\nHost: kgate.test\r\n\r\n"},
	{name: "HTTP/0.9", sent: "GET /a-path-that-is-not-all-too-short\r\n\r\n"},
	{name: "HTTP/1.2", sent: h1("GET / HTTP/1.2", "Host: kgate.test", "", "")},
	{name: "HTTP/3.0 in the request line", sent: h1("GET / HTTP/3.0", "Host: kgate.test", "", "")},
}

var spoofing = []attempt{
	{name: "Kgate-Fence", sent: get("Kgate-Fence: pool/999/999")},
	{name: "kgate-fence, kgate_fence, KGATE-OTHER", sent: get("kgate-fence: a", "kgate_fence: b", "KGATE-OTHER: c")},
	{name: "Kgate-* as trailer", sent: post("5\r\nhello\r\n0\r\nKgate-Fence: pool/999/999\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: Kgate-Fence")},
	{name: "Kgate-* as trailer that is not announced", sent: post("5\r\nhello\r\n0\r\nKgate-Fence: pool/999/999\r\n\r\n", "Transfer-Encoding: chunked")},
	{name: "Content-Length as trailer", breaks: true, sent: post("5\r\nhello\r\n0\r\nContent-Length: 0\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: Content-Length")},
	{name: "X-Forwarded-For, -Host, -Proto", sent: get("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: other.test", "X-Forwarded-Proto: https")},
	{name: "X_Forwarded_For", sent: get("X_Forwarded_For: 203.0.113.9")},
	{name: "X-Forwarded-Port, -Prefix", sent: get("X-Forwarded-Port: 443", "X-Forwarded-Prefix: /admin")},
	{name: "Forwarded", sent: get(`Forwarded: for=203.0.113.9;host=other.test;proto=https`)},
	{name: "X-Real-Ip", sent: get("X-Real-Ip: 203.0.113.9")},
	{name: "Connection: X-Forwarded-For", sent: get("Connection: X-Forwarded-For, Via, Host", "X-Forwarded-For: 203.0.113.9")},
	{name: "Connection: Kgate-Fence", sent: get("Connection: Kgate-Fence", "Kgate-Fence: pool/999/999")},
	{name: "Connection: Content-Length", sent: post("hello", "Connection: Content-Length", "Content-Length: 5")},
	{name: "Connection: Authorization", sent: get("Connection: Authorization", "Authorization: Basic eA==")},
	{name: "Proxy-Connection, Keep-Alive, TE", sent: get("Proxy-Connection: keep-alive", "Keep-Alive: timeout=9", "TE: gzip")},
	{name: "Upgrade: h2c", sent: get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")},
	{name: "Upgrade: h2c, settings not listed", sent: get("Connection: Upgrade", "Upgrade: websocket, H2C", "HTTP2-Settings: AAMAAABkAAQAAP__")},
	{name: "Upgrade: h2c with a body", sent: post("hello", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Content-Length: 5")},
	{name: "Upgrade: websocket that the upstream does not take", sent: get("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")},
	{name: "Expect: 100-continue", sent: post("hello", "Expect: 100-continue", "Content-Length: 5")},
	{name: "Expect: 100-continue without a body", sent: get("Expect: 100-continue")},
	{name: "Expect: something else", sent: post("hello", "Expect: x", "Content-Length: 5")},
	{name: "Expect twice", sent: post("hello", "Expect: 100-continue", "Expect: 100-continue", "Content-Length: 5")},
}

var overHTTP2 = []attempt{
	{name: "an honest GET", fields: h2("GET")},
	{name: "an honest POST", fields: h2("POST"), body: "hello"},
	{name: "Transfer-Encoding", fields: h2("POST", [2]string{"transfer-encoding", "chunked"}), body: "0\r\n\r\n" + smuggled},
	{name: "Connection", fields: h2("GET", [2]string{"connection", "keep-alive"})},
	{name: "a length that is too short", breaks: true, fields: h2("POST", [2]string{"content-length", "3"}), body: smuggled},
	{name: "a length that is too long", breaks: true, fields: h2("POST", [2]string{"content-length", "500"}), body: "hello"},
	{name: "two lengths", fields: h2("POST", [2]string{"content-length", "5"}, [2]string{"content-length", "0"}), body: "hello"},
	{name: "a length and no body", fields: h2("POST", [2]string{"content-length", "5"})},
	{name: "two hosts", fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"host", "kgate.test"}, {"host", "other.test"}}},
	{name: "a line break in a value", fields: h2("GET", [2]string{"x-test", "a\r\nKgate-Fence: pool/1/1"})},
	{name: "a line break in a name", fields: h2("GET", [2]string{"x-test: a\r\nkgate-fence", "pool/1/1"})},
	{name: "a line break in the path", fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "kgate.test"}, {":path", "/ HTTP/1.1\r\nHost: other.test\r\n\r\n"}}},
	{name: "a line break in the method", fields: [][2]string{{":method", "GET / HTTP/1.1\r\nX:"}, {":scheme", "http"}, {":authority", "kgate.test"}, {":path", "/"}}},
	{name: "a line break in the authority", fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "kgate.test\r\nX-Test: a"}, {":path", "/"}}},
	{name: "a colon in a name", fields: h2("GET", [2]string{"x-test:", "a"})},
	{name: "upper case in a name", fields: h2("GET", [2]string{"X-Test", "a"})},
	{name: "a pseudo header behind a header", fields: append([][2]string{{"x-test", "a"}}, h2("GET")...)},
	{name: "an unknown pseudo header", fields: h2("GET", [2]string{":host", "other.test"})},
	{name: "two paths", fields: h2("GET", [2]string{":path", "/smuggled"})},
	{name: "no path", fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "kgate.test"}}},
	{name: "authority and another host", fields: h2("GET", [2]string{"host", "other.test"})},
	{name: "kgate-fence", fields: h2("GET", [2]string{"kgate-fence", "pool/999/999"})},
	{name: "kgate-fence as trailer", fields: h2("POST", [2]string{"trailer", "kgate-fence"}), body: "hello", trailers: [][2]string{{"kgate-fence", "pool/999/999"}}},
	{name: "a pseudo header as trailer", breaks: true, fields: h2("POST"), body: "hello", trailers: [][2]string{{":path", "/smuggled"}}},
	{name: "extended CONNECT", fields: h2("CONNECT", [2]string{":protocol", "websocket"})},
}
