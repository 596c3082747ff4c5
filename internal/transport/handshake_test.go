package transport

import (
	"bytes"
	"errors"
	"testing"
)

func TestPreambleRoundTrips(t *testing.T) {
	for kind := streamLink; kind < streamEnd; kind++ {
		got, err := decodePreamble(appendPreamble(nil, kind))
		if err != nil || got != kind {
			t.Errorf("%v: decoded %v, %v", kind, got, err)
		}
	}
	if err := decodeAnswer(answerOf(statusOK)); err != nil {
		t.Errorf("ok: %v", err)
	}
	for s := statusVersion; s < statusEnd; s++ {
		if err := decodeAnswer(answerOf(s)); !errors.Is(err, errRefused) || statusText[s] == "" {
			t.Errorf("status %d: error %v", s, err)
		}
	}
	h := hello{from: 1, to: 1 << 60, received: 300}
	if got, err := decodeHello(h.append(nil)); err != nil || got != h {
		t.Errorf("hello: decoded %+v, %v, want %+v", got, err, h)
	}
}

func TestPreambleRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		b    string
		want error
	}{
		"empty":       {"", errTruncated},
		"http":        {"GET / HT", errMagic},
		"tls":         {"\x16\x03\x01\x02\x00\x01\x00\x01", errMagic},
		"version 0":   {"kgat\x00\x01\x00\x00", errVersion},
		"version 3":   {"kgat\x03\x01\x00\x00", errVersion},
		"version 2":   {"kgat\x02\x01\x00\x00", errVersion},
		"kind 0":      {"kgat\x04\x00\x00\x00", errPreamble},
		"kind 5":      {"kgat\x04\x05\x00\x00", errPreamble},
		"unused byte": {"kgat\x04\x01\x00\x01", errPreamble},
		"short":       {"kgat\x04\x01\x00", errTruncated},
	} {
		if _, err := decodePreamble([]byte(tc.b)); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
	}
	for _, s := range []status{0, statusEnd} {
		if err := decodeAnswer(answerOf(s)); !errors.Is(err, errPreamble) {
			t.Errorf("status %d: error %v", s, err)
		}
	}
	for _, h := range []hello{{}, {from: 1}, {to: 1}, {from: 1, to: 1}} {
		if _, err := decodeHello(h.append(nil)); !errors.Is(err, errPreamble) {
			t.Errorf("%+v: error %v", h, err)
		}
	}
}

// FuzzPreamble: what is accepted of a connection's opening is canonical too.
func FuzzPreamble(f *testing.F) {
	f.Add(hello{from: 1, to: 2, received: 3}.append(appendPreamble(nil, streamLink)))
	f.Add(appendPreamble(nil, StreamRaft))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, rest := b, []byte(nil)
		if len(b) > preambleSize {
			first, rest = b[:preambleSize], b[preambleSize:]
		}
		if kind, err := decodePreamble(first); err == nil && !bytes.Equal(appendPreamble(nil, kind), first) {
			t.Fatalf("preamble %x decoded as %v", first, kind)
		}
		if err := decodeAnswer(first); err == nil && !bytes.Equal(answerOf(statusOK), first) {
			t.Fatalf("answer %x accepted", first)
		}
		if h, err := decodeHello(rest); err == nil && !bytes.Equal(h.append(nil), rest) {
			t.Fatalf("hello %x decoded as %+v", rest, h)
		}
	})
}
