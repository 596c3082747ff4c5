package kgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/kgate/kgate/proxy/upstream"
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
// the header Kgate-Fence; other headers and trailers Kgate-* are not sent, nor is an Upgrade
// to another kind of HTTP.
//
// A slot serves one request after the other. While one is in flight a second one fails with
// [ErrSlotInUse]. A request is over when RoundTrip has failed, when the response's body was
// read to its end or its Close returns, and when the slot is released or lost: a Read of the
// body then fails with [ErrLost]. The connection of a request that is over serves the next one or is
// closed, and with HTTP/2 its stream has ended: if the server does not confirm that for five
// seconds, the connection is closed with all of its streams. The body of an answer with status
// 101 is the connection: its Close waits up to a second until the server has what was
// written, and the slot's release or loss closes it at once.
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
	//lint:ignore SA1019 the caller's
	dial := withContext(base.DialContext, base.Dial)
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = fenced(dial, entitled)
	//lint:ignore SA1019 the caller's
	if dial = withContext(base.DialTLSContext, base.DialTLS); dial != nil {
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
	x, err := t.enter(r.Context(), slot)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	defer close(x.returned)
	r = x.prepare(r, slot)
	res, err := t.base.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(x.ctx); cause != nil {
			err = cause
		}
		x.finish()
		return nil, err
	}
	conn := x.Load()
	stream, isStream := res.Body.(io.ReadWriteCloser)
	switch {
	case conn == nil && res.ProtoMajor == 1: // the connection is idle again
		x.finish()
	case isStream && conn != nil && res.StatusCode == http.StatusSwitchingProtocols:
		x.switched.Store(true) // net/http has left the connection to the caller
		res.Body = &switched{ReadWriteCloser: stream, conn: conn, finish: x.finish}
	case upstream.IsEmpty(res.Body) && x.written.Load(): // it may never be closed
		x.over()
		if conn != nil {
			_ = conn.Close() // it serves nobody else
		}
		x.finish()
	default:
		x.body = &fencedBody{ReadCloser: res.Body, exchange: x}
		res.Body = x.body
	}
	return res, nil
}

// enter begins a request that uses the slot.
func (t *fencedTransport) enter(ctx context.Context, slot *Slot) (*exchange, error) {
	if err := t.check(slot); err != nil {
		return nil, err
	}
	x := &exchange{returned: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	var err error
	if x.leave, err = slot.held.Enter(x.end); err != nil {
		x.cancel(nil)
		return nil, err
	}
	return x, nil
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

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *fencedTransport) CloseIdleConnections() {
	t.base.CloseIdleConnections()
	t.http2.closeIdle()
}
