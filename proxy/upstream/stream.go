package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
)

// stream is an exchange over HTTP/2.
type stream struct {
	http2  *http2
	caller Caller
	cancel context.CancelFunc
	upload *watchedBody // nil: the request has no body

	mu     sync.Mutex
	opened bool
	over   bool // no informational answer is taken any more

	early  chan informational // answers that wait for the caller; nil: none has come
	passed chan struct{}      // closed when the caller has had the last
}

// informational is an answer of status 1xx.
type informational struct {
	status int
	header http.Header
}

// maxInformational is how many informational answers of a stream wait for the caller.
// Further ones are dropped: they are hints.
const maxInformational = 8

// roundTrip implements exchanger.
func (h *http2) roundTrip(req *http.Request, caller Caller) (*http.Response, error) {
	s := &stream{http2: h, caller: caller}
	ctx, cancel := context.WithCancel(req.Context())
	s.cancel = cancel
	out := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders:   s.noteOpened,
		Got1xxResponse: s.gotInformational,
	}))
	if hasBody(req) {
		s.upload = &watchedBody{ReadCloser: req.Body}
		out.Body = s.upload
	}
	res, err := h.cc.RoundTrip(out)
	s.noteOpened()
	s.endInformational()
	if err != nil {
		s.end()
		if req.Context().Err() != nil {
			return nil, cause(req.Context())
		}
		return nil, s.explain(err)
	}
	h.mu.Lock()
	h.used = true
	h.mu.Unlock()
	res.Request = req
	res.Body = &streamBody{ReadCloser: res.Body, stream: s}
	return res, nil
}

// noteOpened is called when the HEADERS have been written, and when they will not
// be any more: net/http looks whether a request was cancelled before it writes.
func (s *stream) noteOpened() {
	s.mu.Lock()
	first := !s.opened
	s.opened = true
	s.mu.Unlock()
	if first {
		s.http2.opened()
	}
}

// gotInformational takes an answer of status 1xx. It is called on the goroutine that
// reads the connection, which other requests share: it must not wait for the caller,
// whose client may be slow.
func (s *stream) gotInformational(status int, header textproto.MIMEHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	if s.early == nil {
		s.early, s.passed = make(chan informational, maxInformational), make(chan struct{})
		go s.passInformational()
	}
	select {
	case s.early <- informational{status, http.Header(header)}:
	default:
	}
	return nil
}

// passInformational passes informational answers on, in their order.
func (s *stream) passInformational() {
	defer close(s.passed)
	for i := range s.early {
		if s.caller.Informational(i.status, i.header) != nil {
			s.cancel()
			return
		}
	}
}

// endInformational returns when the caller has had the informational answers.
func (s *stream) endInformational() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	if s.early != nil {
		close(s.early)
		<-s.passed
	}
}

// end returns when the stream is closed. The rest of the
// request's body is not wanted.
func (s *stream) end() {
	if s.upload != nil && !s.upload.ended.Load() {
		s.caller.StopUpload()
	}
	s.cancel()
	s.http2.end()
}

// Errors of net/http that tell that the server has not looked at a request. It
// does not export them.
const (
	errUnusable = "http2: client connection not usable"
	errGoAway   = "http2: Transport received Server's graceful shutdown GOAWAY"
)

// codeRefusedStream is a server's word that it has not looked at a request: RFC 9113, 8.7.
const codeRefusedStream = 0x7

// streamReset is filled in by errors.As from net/http's own error for a stream that the
// server has reset: that one converts to any struct with fields of these names.
type streamReset struct {
	StreamID, Code uint32
	Cause          error
}

// Error implements error, as errors.As demands.
func (streamReset) Error() string { return "the server has reset the stream" }

// explain returns err as a deadError if the request may be sent again.
func (s *stream) explain(err error) error {
	var reset streamReset
	refused := errors.As(err, &reset) && reset.Code == codeRefusedStream
	if refused || err.Error() == errUnusable || err.Error() == errGoAway {
		return &deadError{err: err, unseen: s.upload == nil || !s.upload.touched.Load()}
	}
	var timeout net.Error
	s.http2.mu.Lock()
	used := s.http2.used
	s.http2.mu.Unlock()
	if used && s.http2.cc.Err() != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
		return &deadError{err: err}
	}
	return err
}

// watchedBody is a request's body. It knows whether it has been read from, and to
// its end. Closing it is the caller's affair.
type watchedBody struct {
	io.ReadCloser
	touched, ended atomic.Bool
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (*watchedBody) Close() error { return nil }

// streamBody is the body of an answer.
type streamBody struct {
	io.ReadCloser
	stream *stream
	closed bool
}

// Close implements io.Closer. When it returns the stream is closed on the wire.
func (b *streamBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.stream.cancel()
	_ = b.ReadCloser.Close()
	b.stream.end()
	return nil
}
