package kgate

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// exchange is a request under a slot, and its answer.
type exchange struct {
	use
	ctx      context.Context
	cancel   context.CancelCauseFunc
	leave    func()                // the slot, for the next request
	returned chan struct{}         // closed when RoundTrip has returned
	body     *fencedBody           // of the answer, from then on; nil: it is over, or switched
	switched atomic.Bool           // to another protocol
	cut      atomic.Pointer[error] // why the slot has ended it
}

// prepare returns the request as it is sent.
func (x *exchange) prepare(r *http.Request, slot *Slot) *http.Request {
	x.written.Store(r.Body == nil || r.Body == http.NoBody)
	hasBody := !x.written.Load()
	r = r.WithContext(httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			x.Store(nil)
			x.written.Store(!hasBody)
			if conn := fencedBelow(info.Conn); !conn.shared {
				x.begin(conn)
			}
			if slot.Valid() && x.cut.Load() == nil {
				return
			}
			// The slot has ended, or this is a second attempt, under a lease that is not the
			// slot's. HTTP/2 looks at the context right before it opens a stream; HTTP/1 does not.
			x.cancel(ErrLost)
			if conn := x.Load(); conn != nil {
				_ = conn.Close()
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				x.written.Store(true)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil {
				x.over()
				x.Store(nil)
			}
		},
	}))
	proxy.RemoveForbidden(r)
	r.Header = r.Header.Clone()
	r.Header["Kgate-Fence"] = []string{slot.Fence()}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		// Under these names net/http takes them for leave to send a POST without a body again.
		if values, ok := r.Header[name]; ok {
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
	if x.upload = uploadOf(r); x.upload != nil {
		r.Body = x.upload
	}
	return r
}

// finish notes that the exchange is over.
func (x *exchange) finish() {
	x.cancel(nil)
	x.leave()
}

// end ends the exchange with its slot, and returns when it is over at the server.
func (x *exchange) end(why error) {
	x.cut.Store(&why)
	x.cancel(why)
	if conn := x.Load(); conn != nil && x.switched.Load() {
		conn.closeDelivered()
	} else {
		x.breakOff()
	}
	<-x.returned
	if x.body != nil {
		_ = x.body.Close()
	}
}

// fencedBody is a response's body. Over HTTP/1, closing one that has more to come breaks
// its connection off: net/http does so too, but only after its own Close has returned.
type fencedBody struct {
	io.ReadCloser
	*exchange
}

// Read implements io.Reader.
func (b *fencedBody) Read(p []byte) (int, error) {
	if why := b.cut.Load(); why != nil { // what is buffered still came under the slot, but nobody waits for it
		return 0, *why
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.written.Load() { // after an early answer the upload may go on
		b.over()
		b.finish()
	} else if why := b.cut.Load(); why != nil && err != nil {
		err = *why
	}
	return n, err
}

// Close implements io.Closer.
func (b *fencedBody) Close() error {
	err := b.ReadCloser.Close()
	if conn := b.Load(); conn != nil {
		_ = conn.Close()
	}
	b.finish()
	return err
}

// lastWord is how long the server may take to accept what was written to a connection
// that is then closed.
const lastWord = time.Second

// switched is the body of an answer with status 101: the connection, which goes on in
// another protocol.
type switched struct {
	io.ReadWriteCloser // the connection, or TLS over it
	conn               *fencedConn
	finish             func()
}

// CloseWrite tells the server that nothing more comes.
func (s *switched) CloseWrite() error { return tcpstate.CloseWrite(s.ReadWriteCloser) }

// Close implements io.Closer.
func (s *switched) Close() error {
	defer s.finish()
	late := time.AfterFunc(lastWord, func() { _ = s.conn.Close() })
	defer late.Stop()
	_ = s.CloseWrite()
	for pause := time.Millisecond; !s.conn.IsDelivered(); pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
	s.conn.closeDelivered()
	return nil
}
