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

	"github.com/kgate/kgate/proxy/downstream"
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
				inVirtualTime(t, func(t *testing.T) {
					up := newGate()
					g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
					dial := g.dial
					if secure {
						g.serveTLS(downstream.Config{})
						dial = func() *rawConn { return g.dialTLS("h2") }
					}
					conn := dial()
					conn.send(string(c.sent[:len(c.sent)-c.cut]))
					began := time.Now()
					_, err := io.Copy(io.Discard, conn.br) // patience ends it
					if took := time.Since(began); errors.Is(err, os.ErrDeadlineExceeded) == c.ends || c.ends && took != headerTime {
						t.Errorf("%v after %v", err, took)
					}
					close(up.proceed)
				})
			})
		}
	}
}
