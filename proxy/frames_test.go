package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames returns what write writes, behind the preface and the client's settings.
func frames(t *testing.T, write func(*http2.Framer)) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	f.AllowIllegalWrites = true
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	write(f)
	return out.Bytes()
}

// requestHeader is a header block.
func requestHeader(t *testing.T, method, path string) []byte {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "h"}, {":path", path}} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}

// TestHalfFrames: an HTTP/2 client that does not end what it has begun to say is cut
// off when the time for a header is over, also when a request of its is in progress;
// one that says nothing, or is slow with a body, is not.
func TestHalfFrames(t *testing.T) {
	get := requestHeader(t, "GET", "/")
	headers := func(f *http2.Framer, stream uint32, whole bool) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: get, EndHeaders: whole, EndStream: true})
	}
	for _, c := range []struct {
		name string
		sent []byte
		cut  int  // bytes that are left out at the end
		ends bool // the connection is closed
	}{
		{"nothing", frames(t, func(*http2.Framer) {}), 0, false},
		{"half a frame header", frames(t, func(f *http2.Framer) { headers(f, 1, true) }), len(get) + 5, true},
		{"half a HEADERS frame", frames(t, func(f *http2.Framer) { headers(f, 1, true) }), 1, true},
		{"a header that is to be continued", frames(t, func(f *http2.Framer) { headers(f, 1, false) }), 0, true},
		{"a continuation that is to be continued", frames(t, func(f *http2.Framer) {
			headers(f, 1, false)
			_ = f.WriteContinuation(1, false, nil)
		}), 0, true},
		{"half a PING", frames(t, func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }), 4, true},
		{"half a HEADERS frame behind a request", frames(t, func(f *http2.Framer) {
			headers(f, 1, true)
			headers(f, 3, true)
		}), 1, true},
		{"a request", frames(t, func(f *http2.Framer) { headers(f, 1, true) }), 0, false},
		{"half a DATA frame", frames(t, func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "POST", "/"), EndHeaders: true})
			_ = f.WriteData(1, false, make([]byte, 10))
		}), 5, false},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", TLS"}[secure], func(t *testing.T) {
				t.Parallel()
				up := newGate()
				g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
				const limit = time.Second // in which a busy machine has shaken hands, too
				dial := g.dial
				if secure {
					g.serveTLS(ServerConfig{ReadHeaderTimeout: limit})
					dial = func() *rawConn { return g.dialTLS("h2") }
				} else {
					g.listen(ServerConfig{ReadHeaderTimeout: limit})
				}
				conn := dial()
				conn.send(string(c.sent[:len(c.sent)-c.cut]))
				began := time.Now()
				if !c.ends {
					_ = conn.SetReadDeadline(time.Now().Add(limit + limit/2))
				}
				_, err := io.Copy(io.Discard, conn.br)
				if open := errors.Is(err, os.ErrDeadlineExceeded); open == c.ends {
					t.Errorf("open: %v after %v", open, time.Since(began))
				}
				if c.ends {
					t.Logf("closed after %v", time.Since(began))
				}
				close(up.proceed)
			})
		}
	}
}

// TestFrameTimer: it counts alike however the bytes are cut, and finds no frames in
// HTTP/1.
func TestFrameTimer(t *testing.T) {
	block := requestHeader(t, "GET", "/")
	sent := frames(t, func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3]})
		_ = f.WriteContinuation(1, true, block[3:])
		_ = f.WriteData(1, true, make([]byte, 1000))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true})
	})
	for size := 1; size <= len(sent); size += 7 {
		var f frameTimer
		for from := 0; from < len(sent); from += size {
			f.count(sent[from:min(from+size, len(sent))])
		}
		if f.http1 || f.incomplete() || f.preface != len(http2.ClientPreface) {
			t.Fatalf("in pieces of %d: %+v", size, f)
		}
	}
	// At each byte: whether a frame or header has begun that has not ended.
	var f frameTimer
	pending := 0
	for i := range sent {
		f.count(sent[i : i+1])
		if f.incomplete() {
			pending++
		}
	}
	const header = 9
	settings, data := header-1, header-1
	if want := settings + header + 3 + header + len(block) - 4 + data + header + len(block) - 1; pending != want {
		t.Errorf("incomplete behind %d bytes, want %d", pending, want)
	}
	f = frameTimer{}
	if f.count([]byte("PRI / HTTP/1.1\r\n")); !f.http1 {
		t.Error("takes HTTP/1 for HTTP/2")
	}
}
