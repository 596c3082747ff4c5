package httphead

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestScan(t *testing.T) {
	for _, c := range []struct {
		head         string
		coded, sized bool
	}{
		{"GET / HTTP/1.0\r\nHost: h\r\n\r\n", false, false},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", true, false},
		{"POST / HTTP/1.0\nTRANSFER-encoding:\n\n", true, false},
		{"POST / HTTP/1.0\r\nContent-length:5\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n", true, true},
		{"POST / HTTP/1.0\r\nX-Transfer-Encoding: a\r\nTransfer-Encodings: a\r\nX: Transfer-Encoding: a\r\n\r\n", false, false},
		{"POST / HTTP/1.0\r\nX: a\r\n Transfer-Encoding: a\r\n\r\n", false, false},
		{"POST / HTTP/1.0\r\nContent-Length: 28\r\n\r\nTransfer-Encoding: chunked\r\n", false, true},
		{"Transfer-Encoding:\r\n\r\n", false, false}, // a first line, if a bad one
		{"HTTP/1.1 200 OK\r\n\r\nTransfer-Encoding: a\r\n", false, false},
		{"HTTP/1.0 200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length  : 5\r\n\r\n", true, true},
		{"GET / HTTP/1.0\r\n" + strings.Repeat("X: "+strings.Repeat("x", 5000)+"\r\n", 5) + "Content-Length: 0\r\n\r\n", false, true},
	} {
		var whole, bytewise Scan
		whole.Read([]byte(c.head))
		for i := range len(c.head) {
			bytewise.Read([]byte{c.head[i]})
		}
		for i, s := range []*Scan{&whole, &bytewise} {
			if s.Coded() != c.coded || s.Sized() != c.sized {
				t.Errorf("%.60q: coded %v, sized %v, bytewise %v", c.head, s.Coded(), s.Sized(), i == 1)
			}
		}
		whole.Reset()
		if whole.Read([]byte("GET / HTTP/1.1\r\n")); whole.Coded() || whole.Sized() {
			t.Errorf("%.60q: reset forgets nothing", c.head)
		}
	}
}

// FuzzScan: what net/http finds in a head, Scan finds.
func FuzzScan(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n z\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Scan
		r, err := http.ReadRequest(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(data))))
		s.Read(data)
		if err != nil {
			return
		}
		if len(r.TransferEncoding) > 0 && !s.Coded() || len(r.Header["Content-Length"]) > 0 && !s.Sized() {
			t.Errorf("coded %v, sized %v: %+v", s.Coded(), s.Sized(), r)
		}
	})
}
