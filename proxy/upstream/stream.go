package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// stream is an exchange over HTTP/2.
type stream struct {
	exchange
	http2  *http2
	caller Caller
	upload *watchedBody // nil: the request has no body
	before int64        // bytes read of the connection

	mu     sync.Mutex
	closed bool // informational answers are no longer taken

	early  chan informational // answers that wait for the caller; nil: none has come
	passed chan struct{}      // closed when the caller has got the last
}

// informational is an answer of status 1xx.
type informational struct {
	status int
	fields http1.Fields
}

// maxInformational is how many informational answers of a stream wait for the caller.
// Further ones are dropped: they are hints.
const maxInformational = 8

// roundTrip implements exchanger.
func (h *http2) roundTrip(req *Request, caller Caller) (*Response, error) {
	if req.Fields.Has(http1.Upgrade) {
		h.unused()
		return nil, &UpgradeError{Detail: "HTTP/2 has no upgrades"}
	}
	s := &stream{exchange: exchange{streams: h.streams}, http2: h, caller: caller, before: h.read.Load()}
	s.stop = s.stopUpload
	out := req.withHeader()
	if hasBody(req) {
		s.upload = &watchedBody{ReadCloser: req.Body}
		out.Body = s.upload
	}
	res, err := s.do(out, &httptrace.ClientTrace{Got1xxResponse: s.gotInformational})
	s.endInformational()
	if err != nil {
		if req.Context().Err() != nil {
			return nil, cause(req.Context())
		}
		return nil, s.explain(err)
	}
	h.used.Store(true)
	fields := adapt.Fields(res.Header)
	res.Header, res.Request = nil, &req.Request
	return &Response{res, fields}, nil
}

// stopUpload ends a Read of the request's body.
func (s *stream) stopUpload() {
	if s.upload != nil && !s.upload.ended.Load() {
		s.caller.StopUpload()
	}
}

// gotInformational takes an answer of status 1xx. It is called on the goroutine that
// reads the connection, which other requests share: it must not wait for the caller,
// whose client may be slow.
func (s *stream) gotInformational(status int, header textproto.MIMEHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.early == nil {
		s.early, s.passed = make(chan informational, maxInformational), make(chan struct{})
		go s.passInformational()
	}
	select {
	case s.early <- informational{status, adapt.Fields(http.Header(header))}:
	default:
	}
	return nil
}

// passInformational passes informational answers on, in their order.
func (s *stream) passInformational() {
	defer close(s.passed)
	for i := range s.early {
		if s.caller.Informational(i.status, i.fields) != nil {
			s.cancel()
			return
		}
	}
}

// endInformational returns when the caller has got the informational answers.
func (s *stream) endInformational() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.early != nil {
		close(s.early)
		<-s.passed
	}
}

// explain returns err as a deadError if the request may be sent again. Whatever is read while it
// is in flight may be of its answer: half a header, of which net/http does not tell.
func (s *stream) explain(err error) error {
	if errors.As(err, new(unseenError)) {
		return &deadError{err: err, unseen: s.upload == nil || !s.upload.touched.Load()}
	}
	if s.http2.used.Load() && s.http2.Err() != nil && isEnd(err) && s.http2.read.Load() == s.before {
		return &deadError{err: err}
	}
	return err
}

// watchedBody is a request's body. It knows whether it has been read from, and to
// its end. The caller closes it.
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
