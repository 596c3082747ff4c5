package abuse

import (
	"math/rand/v2"
	"strings"
)

// seedRequests and seedAnswers are what mutants are made of.
var (
	seedRequests = []string{
		"GET /a?b=c HTTP/1.1\r\nHost: kgate.test\r\nAccept: */*\r\nX-One: 1\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: kgate.test\r\nContent-Length: 5\r\nX-One: 1\r\n\r\nhello",
		"POST /a HTTP/1.1\r\nHost: kgate.test\r\nTransfer-Encoding: chunked\r\nX-One: 1\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
		"PUT /a HTTP/1.1\r\nHost: kgate.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
		"GET http://kgate.test/a HTTP/1.1\r\nHost: kgate.test\r\nConnection: keep-alive, X-One\r\nX-One: 1\r\nX-Two: 2\r\n\r\n",
		"HEAD /a HTTP/1.0\r\nHost: kgate.test\r\nConnection: keep-alive\r\nCookie: a=b; c=d\r\n\r\n",
	}
	seedAnswers = []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-One: 1\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-One: 1\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
		"HTTP/1.0 404 Not Found\r\nX-One: 1\r\nX-Two: 2\r\n\r\nuntil the end",
		"HTTP/1.1 204 No Content\r\nX-One: 1\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close, X-One\r\nX-One: 1\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nuntil the end",
	}
)

// pieces are what readers disagree about.
var pieces = []string{
	"\r\n", "\n", "\r", "\r\r\n", " ", "\t", ":", " :", ",", ";", "\x00", "\x0b", "\x0c", "\x7f", "\x85", "\xa0", "\xff", "+", "-", "0", "0x", "_", "\"", "\\", "%", "%2e", "/", "..", "#", "?", "*", "@",
	"chunked", "identity", "Content-Length: 3\r\n", "Content-Length: 0\r\n", "Content-Length : 3\r\n", "Content_Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding:\r\n chunked\r\n",
	"Transfer-Encoding: gzip, chunked\r\n", "Host: other.test\r\n", "Connection: close\r\n", "Connection: Host\r\n", "Connection: Content-Length\r\n", "Trailer: Content-Length\r\n", "Expect: 100-continue\r\n",
	"\r\n\r\n", "0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: kgate.test\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", " HTTP/1.1", "HTTP/1.0", "X-One: 2\r\n", "Kgate-Fence: 1\r\n", "X_Forwarded_For: 1\r\n", "Alt-Svc: a\r\n",
}

// mutate changes a message in one to three places.
func mutate(r *rand.Rand, seeds []string) string {
	s := seeds[r.IntN(len(seeds))]
	for range 1 + r.IntN(3) {
		i := r.IntN(len(s) + 1)
		switch r.IntN(7) {
		case 0, 1:
			s = s[:i] + pieces[r.IntN(len(pieces))] + s[i:]
		case 2: // in place of what stands there
			piece := pieces[r.IntN(len(pieces))]
			s = s[:i] + piece + s[min(len(s), i+len(piece)):]
		case 3:
			j := min(len(s), i+1+r.IntN(4))
			s = s[:i] + s[j:]
		case 4:
			if i < len(s) {
				s = s[:i] + string([]byte{byte(r.Uint32())}) + s[i+1:]
			}
		case 5: // a line twice, or in another place
			lines := strings.SplitAfter(s, "\r\n")
			from, to := r.IntN(len(lines)), r.IntN(len(lines))
			s = strings.Join(lines[:to], "") + lines[from] + strings.Join(lines[to:], "")
		case 6: // a line at the end of another one
			if i := strings.Index(s, "\r\n"); i >= 0 {
				s = s[:i+2] + pieces[r.IntN(len(pieces))] + s[i+2:]
			}
		}
	}
	return s
}
