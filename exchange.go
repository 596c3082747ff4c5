package kgate

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
	"time"

	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/upstream"
)

var errUnasked = errors.New("kgate: the server goes on in another protocol, for which nobody has asked")

// exchange is a request under a slot, and the body of its answer. It implements upstream.Caller.
type exchange struct {
	slot     *Slot
	ctx      context.Context
	cancel   context.CancelCauseFunc
	leave    func()                // the slot, for the next request
	upload   *upload               // nil: the request has no body
	returned chan struct{}         // closed when RoundTrip has returned
	answer   io.ReadCloser         // nil: there is none
	using    sync.Mutex            // of answer
	shared   bool                  // its connection carries others meanwhile
	cut      atomic.Pointer[error] // why the slot has ended it
}

// roundTrip sends the request.
func (x *exchange) roundTrip(client *upstream.Client, r *http.Request) (*http.Response, error) {
	res, err := client.RoundTrip(r, x)
	if err != nil {
		x.finish()
		return nil, x.why(err)
	}
	switch tunnel, isTunnel := res.Body.(*upstream.Tunnel); {
	case isTunnel && r.Header.Get("Upgrade") == "":
		_ = tunnel.Close()
		x.finish()
		return nil, errUnasked
	case isTunnel:
		x.answer, res.Body = tunnel, &switched{tunnel, x}
	case isEmpty(r.Method, res): // it may never be closed
		_ = res.Body.Close()
		x.finish()
		res.Body = http.NoBody
	default:
		x.answer, res.Body = res.Body, x
	}
	return res, nil
}

// isEmpty reports whether an answer ends with its header.
func isEmpty(method string, res *http.Response) bool {
	return res.ContentLength == 0 || method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
}

// prepare returns the request as it is sent.
func (x *exchange) prepare(r *http.Request) *http.Request {
	r = r.WithContext(x.ctx)
	proxy.RemoveForbidden(r)
	if r.Header = r.Header.Clone(); r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header["Kgate-Fence"] = []string{x.slot.Fence()}
	if _, ok := r.Header["User-Agent"]; !ok { // some servers want one
		r.Header["User-Agent"] = []string{"Go-http-client/1.1"}
	}
	if r.Body != nil && r.Body != http.NoBody {
		x.upload = newUpload(r.Body)
		r.Body = x.upload
	}
	return r
}

// breakOff ends the exchange for a reason, nil: it is over, and a Read of the request's body that waits.
func (x *exchange) breakOff(why error) {
	x.cancel(why)
	if x.upload != nil {
		_ = x.upload.Close()
	}
}

// finish notes that the exchange is over.
func (x *exchange) finish() {
	x.breakOff(nil)
	x.leave()
}

// end ends the exchange with its slot, and returns when it is over at the server.
func (x *exchange) end(why error) {
	x.cut.Store(&why)
	x.breakOff(why)
	<-x.returned
	if x.answer != nil {
		_ = x.Close()
	}
}

// why returns err, or why the slot has ended the exchange.
func (x *exchange) why(err error) error {
	if cut := x.cut.Load(); cut != nil {
		return *cut
	}
	if errors.Is(err, upstream.ErrLapsed) {
		return ErrLost
	}
	return err
}

// Read implements io.Reader.
func (x *exchange) Read(p []byte) (int, error) {
	x.using.Lock()
	defer x.using.Unlock()
	if why := x.cut.Load(); why != nil { // what is buffered still came under the slot, but nobody waits for it
		return 0, *why
	}
	n, err := x.answer.Read(p)
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		_ = x.answer.Close() // after an early answer the upload may go on
		x.finish()
		return n, err
	default:
		return n, x.why(err)
	}
}

// Close implements io.Closer.
func (x *exchange) Close() error {
	if !x.using.TryLock() { // somebody reads
		x.breakOff(nil)
		x.using.Lock()
	}
	defer x.using.Unlock()
	defer x.finish()
	return x.answer.Close()
}

// Check implements upstream.Caller.
func (x *exchange) Check() error {
	if !x.slot.Valid() {
		return ErrLost
	}
	return nil
}

// Connected implements upstream.Caller.
func (x *exchange) Connected(conn net.Conn, _ bool) { x.shared = conn == nil }

// Informational implements upstream.Caller.
func (x *exchange) Informational(status int, fields http1.Fields) error {
	trace := httptrace.ContextClientTrace(x.ctx)
	if trace == nil || trace.Got1xxResponse == nil || x.shared { // over HTTP/2 net/http calls it
		return nil
	}
	return trace.Got1xxResponse(status, textproto.MIMEHeader(adapt.Header(fields)))
}

// Sends implements upstream.Caller.
func (*exchange) Sends() bool { return false }

// StopUpload implements upstream.Caller.
func (x *exchange) StopUpload() bool {
	_ = x.upload.Close()
	return true
}

// lastWord is how long the server may take to accept what was written to a connection
// that is then closed.
const lastWord = time.Second

// switched is the body of an answer with status 101: the connection, which goes on in
// another protocol.
type switched struct {
	*upstream.Tunnel
	exchange *exchange
}

// Close implements io.Closer.
func (s *switched) Close() error {
	defer s.exchange.finish()
	_ = s.CloseWrite()
	if s.Drain(lastWord) {
		s.Finish()
	}
	return s.Tunnel.Close()
}
