package proxy

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// maxRequestID is the longest id that is taken over from a client, in bytes.
const maxRequestID = 128

// identify gives the request its id: the one that it brings, or else a new one.
func (ex *exchange) identify(r *http.Request) {
	name := ex.snapshot.requestID
	if name == "" {
		return
	}
	if values := r.Header[name]; len(values) == 1 && isRequestID(values[0]) {
		ex.requestID = values[0]
		return
	}
	ex.requestID = uuid.NewString()
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
