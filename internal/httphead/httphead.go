// Package httphead looks at the heads of HTTP/1 messages as they come, for what net/http takes
// out of them without a word: Transfer-Encoding in HTTP/1.0, and Content-Length beside
// Transfer-Encoding. Both mean that somebody else may find another end of the body (RFC 9112,
// section 6.1).
package httphead

import (
	"bytes"
	"sync/atomic"
)

var (
	transferEncoding = []byte("transfer-encoding")
	contentLength    = []byte("content-length")
)

// Scan looks at the head of one message. One goroutine at a time calls Read. The zero value is ready for use.
type Scan struct {
	coded, sized atomic.Bool

	begin  [len("transfer-encoding:")]byte // of the present line
	have   int                             // bytes of it
	within bool
	ended  bool
}

// Reset makes s ready for the next head.
func (s *Scan) Reset() {
	s.coded.Store(false)
	s.sized.Store(false)
	s.have, s.within, s.ended = 0, false, false
}

// Read takes what has come. What follows the head is passed over.
func (s *Scan) Read(p []byte) {
	for len(p) > 0 && !s.ended {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		s.have += copy(s.begin[s.have:], line)
		if whole {
			s.line(s.begin[:s.have])
			s.have = 0
		}
		p = rest
	}
}

// line takes the beginning of a line.
func (s *Scan) line(begin []byte) {
	switch {
	case !s.within: // the first one
		s.within = true
	case len(begin) == 0 || string(begin) == "\r":
		s.ended = true
	case isField(begin, transferEncoding):
		s.coded.Store(true)
	case isField(begin, contentLength):
		s.sized.Store(true)
	}
}

// isField reports whether a line is a field of that name. There may be spaces before the colon,
// which net/http lets pass in answers.
func isField(begin, name []byte) bool {
	n := len(name)
	return len(begin) > n && bytes.EqualFold(begin[:n], name) && (begin[n] == ':' || begin[n] == ' ')
}

// Coded reports whether the head has Transfer-Encoding, as far as it has come.
func (s *Scan) Coded() bool { return s.coded.Load() }

// Sized reports whether the head has Content-Length, as far as it has come.
func (s *Scan) Sized() bool { return s.sized.Load() }
