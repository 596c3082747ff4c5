package downstream

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// TestFrameTimer: it counts alike however the bytes are cut.
func TestFrameTimer(t *testing.T) {
	block := make([]byte, 9) // nobody decodes it
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, nil)
	_ = fr.WriteSettings()
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3]})
	_ = fr.WriteContinuation(1, true, block[3:])
	_ = fr.WriteData(1, true, make([]byte, 1000))
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true})
	sent := out.Bytes()
	for size := 1; size <= len(sent); size += 7 {
		var f frameTimer
		for from := 0; from < len(sent); from += size {
			f.count(sent[from:min(from+size, len(sent))])
		}
		if f.incomplete() || f.preface != len(http2.ClientPreface) {
			t.Fatalf("in pieces of %d: %+v", size, &f)
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
}
