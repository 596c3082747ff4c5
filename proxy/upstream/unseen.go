package upstream

import "errors"

// Errors of net/http, which does not export them: the server has not looked at the
// request.
const (
	errUnusable = "http2: client conn not usable"
	errGoAway   = "http2: Transport received Server's graceful shutdown GOAWAY"
)

// codeRefusedStream means that the server has not looked at the request (RFC 9113,
// section 8.7).
const codeRefusedStream = 0x7

// streamReset is filled in by errors.As from net/http's own error for a stream that the
// server has reset: that one converts to any struct with fields of these names.
type streamReset struct {
	StreamID, Code uint32
	Cause          error
}

// Error implements error, as errors.As demands.
func (streamReset) Error() string { return "the server has reset the stream" }

// unseenError is returned for a request that the server has not looked at.
type unseenError struct{ error }

func (e unseenError) Unwrap() error { return e.error }

// saysUnseen reports whether err of net/http's says so. The server may have begun to answer
// all the same.
func saysUnseen(err error) bool {
	var reset streamReset
	refused := errors.As(err, &reset) && reset.Code == codeRefusedStream
	return refused || err.Error() == errUnusable || err.Error() == errGoAway
}
