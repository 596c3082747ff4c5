package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/kgate/kgate/proxy/http1"
)

// maxRequestID is the longest id that is accepted from a client, in bytes.
const maxRequestID = 128

// identify gives the request its id: the client's, or else a new one.
func (ex *exchange) identify(r *http1.Request) {
	name := ex.snapshot.requestID
	if name == "" {
		return
	}
	if values := r.Fields.Values(name); len(values) == 1 && isRequestID(values[0]) {
		ex.requestID = values[0]
		return
	}
	ex.requestID = newRequestID()
}

// newRequestID returns a random UUID (RFC 9562, version 4).
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := make([]byte, 0, 36)
	for i := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, b[i:i+1])
	}
	return string(text)
}

// isRequestID reports whether a client's id may go into logs, headers and pages as it is:
// it is not too long, and has nothing in it that means anything there.
func isRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte("-_.~:/+=@", c) < 0 {
			return false
		}
	}
	return true
}
