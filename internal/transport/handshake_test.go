package transport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kgate/kgate/internal/transport/wire"
)

func TestPreambleRoundTrips(t *testing.T) {
	if err := checkPreamble(appendPreamble(nil)); err != nil {
		t.Errorf("decoded %v", err)
	}
	if err := decodeAnswer(answerOf(statusOK)); err != nil {
		t.Errorf("ok: %v", err)
	}
	for s := statusVersion; s < statusEnd; s++ {
		if err := decodeAnswer(answerOf(s)); !errors.Is(err, errRefused) || statusText[s] == "" {
			t.Errorf("status %d: error %v", s, err)
		}
	}
}

func TestPreambleRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		b    string
		want error
	}{
		"empty":       {"", wire.ErrTruncated},
		"http":        {"GET / HT", errMagic},
		"tls":         {"\x16\x03\x01\x02\x00\x01\x00\x01", errMagic},
		"version 0":   {"kgat\x00\x01\x00\x00", errVersion},
		"version 3":   {"kgat\x03\x01\x00\x00", errVersion},
		"version 4":   {"kgat\x04\x01\x00\x00", errVersion},
		"version 6":   {"kgat\x06\x01\x00\x00", errVersion},
		"kind 0":      {"kgat\x08\x00\x00\x00", errPreamble},
		"kind 4":      {"kgat\x08\x04\x00\x00", errPreamble},
		"unused byte": {"kgat\x08\x01\x00\x01", errPreamble},
		"short":       {"kgat\x08\x01\x00", wire.ErrTruncated},
	} {
		if err := checkPreamble([]byte(tc.b)); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
	}
	for _, s := range []status{0, statusEnd} {
		if err := decodeAnswer(answerOf(s)); !errors.Is(err, errPreamble) {
			t.Errorf("status %d: error %v", s, err)
		}
	}
}

// FuzzPreamble: what is accepted of a connection's opening is canonical too.
func FuzzPreamble(f *testing.F) {
	f.Add(appendPreamble(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		first := b[:min(len(b), preambleSize)]
		if err := checkPreamble(first); err == nil && !bytes.Equal(appendPreamble(nil), first) {
			t.Fatalf("preamble %x accepted", first)
		}
		if err := decodeAnswer(first); err == nil && !bytes.Equal(answerOf(statusOK), first) {
			t.Fatalf("answer %x accepted", first)
		}
	})
}
