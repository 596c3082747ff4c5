package downstream

import (
	"bytes"
	"testing"

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
