package kgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// errNoSlot is what Transport returns for a request without a slot.
var errNoSlot = errors.New("kgate: the request has no slot: give it the context of a request that Middleware has admitted, or one of Slot.Context")

// errOtherNode is for a slot that is valid, as far as its own node knows.
var errOtherNode = fmt.Errorf("%w: this Transport's node has no lease; use the Transport of the node that has granted the slot", ErrLost)

// Transport returns a copy of base, or of http.DefaultTransport if base is nil, that
// sends requests only while their slots are valid. It asks the node's lease right before
// each write to a connection: after a pause of the process not a byte is sent under a
// lease that has run out meanwhile. A connection is used under the lease that it was made
// under, and no other.
//
// A request needs a context with a slot; see [FromContext]. The slot's fence is sent as
// the header Kgate-Fence; other headers and trailers Kgate-* are not sent. Close the response's body before the
// slot is released. When Close returns, or RoundTrip fails, the request is over: its
// connection serves the next one or is closed, and with HTTP/2 its stream has ended: if the
// server does not confirm that for five seconds, the connection is closed with all of its
// streams. The body of an answer with status 101 is the connection: its Close waits up to a second
// until the server has what was written, and the slot's release or loss closes it at once.
//
// The body of a request without GetBody is read and closed on another goroutine. A Read that
// waits there, for a client say, may go on when the request is over.
func (n *Node) Transport(base *http.Transport) http.RoundTripper {
	return newFenced(base, n.node.Entitled)
}

// newFenced returns a Transport that sends under the lease whose number entitled returns;
// 0: there is none.
func newFenced(base *http.Transport, entitled func() uint64) http.RoundTripper {
	if base == nil {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	if base == nil { // the program has replaced it with another type
		base = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	base = base.Clone()
	dial := withContext(base.DialContext, base.Dial) //nolint:staticcheck // the caller's
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = fenced(dial, entitled)
	if dial = withContext(base.DialTLSContext, base.DialTLS); dial != nil { //nolint:staticcheck // the caller's
		base.DialTLSContext = fenced(dial, entitled)
	}
	return &fencedTransport{base, newFencedHTTP2(base, entitled), entitled}
}

type fencedTransport struct {
	base     *http.Transport
	http2    *fencedHTTP2
	entitled func() uint64
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	slot := FromContext(r.Context())
	if err := t.check(slot); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	under := new(use)
	hasBody := r.Body != nil && r.Body != http.NoBody
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			under.Store(nil)
			under.written.Store(!hasBody)
			if conn := fencedBelow(info.Conn); !conn.shared {
				under.begin(conn)
			}
			if slot.Valid() {
				return
			}
			// This is a second attempt, under a lease that is not the slot's. HTTP/2 looks at
			// the context right before it opens a stream; HTTP/1 does not.
			cancel(ErrLost)
			if conn := under.Load(); conn != nil {
				_ = conn.Close()
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				under.written.Store(true)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil {
				under.over()
				under.Store(nil)
			}
		},
	}))
	proxy.RemoveKgate(r)
	r.Header = r.Header.Clone()
	r.Header["Kgate-Fence"] = []string{slot.Fence()}
	if under.upload = uploadOf(r); under.upload != nil {
		r.Body = under.upload
	}
	res, err := t.base.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	conn := under.Load()
	if conn == nil && res.ProtoMajor == 1 { // the connection is idle again
		cancel(nil)
		return res, nil
	}
	if stream, ok := res.Body.(io.ReadWriteCloser); ok && conn != nil && res.StatusCode == http.StatusSwitchingProtocols {
		cancel(nil) // net/http has left the connection to the caller
		res.Body = &switched{ReadWriteCloser: stream, conn: conn, detach: slot.held.Attach(conn.closeDelivered)}
		return res, nil
	}
	res.Body = &fencedBody{ReadCloser: res.Body, under: under, cancel: cancel}
	return res, nil
}

// check returns why nothing may be sent with the slot; nil: it may.
func (t *fencedTransport) check(slot *Slot) error {
	switch {
	case slot == nil:
		return errNoSlot
	case !slot.Valid():
		return ErrLost
	case t.entitled() == 0:
		return errOtherNode
	default:
		return nil
	}
}

// fencedBody is a response's body. Over HTTP/1, closing one that has more to come breaks
// its connection off: net/http does so too, but only after its own Close has returned.
type fencedBody struct {
	io.ReadCloser
	under  *use // nothing, over HTTP/2
	cancel context.CancelCauseFunc
}

// Read implements io.Reader.
func (b *fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.under.written.Load() { // after an early answer the upload may go on
		b.under.over()
		b.cancel(nil)
	}
	return n, err
}

// Close implements io.Closer.
func (b *fencedBody) Close() error {
	err := b.ReadCloser.Close()
	if conn := b.under.Load(); conn != nil {
		_ = conn.Close()
	}
	b.cancel(nil)
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
	detach             func() // from the slot
}

// CloseWrite tells the server that nothing more comes.
func (s *switched) CloseWrite() error { return tcpstate.CloseWrite(s.ReadWriteCloser) }

// Close implements io.Closer.
func (s *switched) Close() error {
	defer s.detach()
	late := time.AfterFunc(lastWord, func() { _ = s.conn.Close() })
	defer late.Stop()
	_ = s.CloseWrite()
	for pause := time.Millisecond; !s.conn.IsDelivered(); pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
	s.conn.closeDelivered()
	return nil
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *fencedTransport) CloseIdleConnections() {
	t.base.CloseIdleConnections()
	t.http2.closeIdle()
}
