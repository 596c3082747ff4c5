package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// errNoSlot is what Transport returns for a request without a slot.
var errNoSlot = errors.New("kgate: the request has no slot: give it the context of a request that Middleware has admitted, or one of Slot.Context")

// Transport returns a copy of base, or of http.DefaultTransport if base is nil, that
// sends requests only while their slots are valid. It asks the node's lease right before
// each write to a connection: after a pause of the process not a byte is sent under a
// lease that has run out meanwhile. A connection is used under the lease that it was made
// under, and no other.
//
// A request needs a context with a slot; see [FromContext]. The slot's fence is sent as
// the header Kgate-Fence unless the request has one. Close the response's body before the
// slot is released: when Close returns, a response that was not read to its end is broken
// off, and the next request may come.
func (n *Node) Transport(base *http.Transport) http.RoundTripper {
	return newFenced(base, n.node.Entitled)
}

// newFenced returns a Transport under leases that entitled names: 0 is none, and each has
// another number.
func newFenced(base *http.Transport, entitled func() uint64) http.RoundTripper {
	if base == nil {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	if base == nil { // the program has put another kind there
		base = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	base = base.Clone()
	if base.TLSNextProto["h2"] != nil { // of golang.org/x/net/http2: it keeps connections of the original
		base.TLSNextProto, base.ForceAttemptHTTP2 = nil, true
	}
	dial := withContext(base.DialContext, base.Dial) //nolint:staticcheck // the caller's
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = fenced(dial, entitled)
	if dial = withContext(base.DialTLSContext, base.DialTLS); dial != nil { //nolint:staticcheck // the caller's
		base.DialTLSContext = fenced(dial, entitled)
	}
	return &fencedTransport{base}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// withContext returns dial, or older, which it replaces, if there is no dial.
func withContext(dial dialFunc, older func(network, addr string) (net.Conn, error)) dialFunc {
	if dial != nil || older == nil {
		return dial
	}
	return func(_ context.Context, network, addr string) (net.Conn, error) { return older(network, addr) }
}

// fenced returns dial for connections that belong to a lease.
func fenced(dial dialFunc, entitled func() uint64) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		under := entitled()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if secure, ok := conn.(*tls.Conn); ok {
			err = secure.HandshakeContext(ctx)
			if err == nil && secure.ConnectionState().NegotiatedProtocol == "h2" {
				err = errDialTLS
			}
			if err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		return &fencedConn{Conn: conn, entitled: entitled, under: under}, nil
	}
}

// errDialTLS is what a DialTLSContext gets that agrees on HTTP/2, for which net/http needs
// the *tls.Conn itself.
var errDialTLS = errors.New("kgate: DialTLSContext has agreed on HTTP/2, which cannot be fenced: set DialContext instead, or remove h2 from the NextProtos")

// fencedConn writes under one lease only.
type fencedConn struct {
	net.Conn
	entitled func() uint64
	under    uint64
	serves   atomic.Pointer[use] // the request over HTTP/1 that is in flight
	once     sync.Once           // of Close
	err      error
}

// use is a request's use of a connection; nil once that serves other requests.
type use struct{ atomic.Pointer[fencedConn] }

// begin notes that the request is in flight over conn.
func (u *use) begin(conn *fencedConn) {
	u.Store(conn)
	conn.serves.Store(u)
}

// over notes that the request's part of the connection is over. Another one may have it
// already: net/http hands an idle connection on before it says that it is idle.
func (u *use) over() {
	if conn := u.Load(); conn != nil {
		conn.serves.CompareAndSwap(u, nil)
	}
}

// Close implements net.Conn. Whoever calls it, the connection is closed when it returns,
// and reset if a request is in flight: otherwise the system would go on to send what it
// has of the request's body.
func (c *fencedConn) Close() error {
	c.once.Do(func() {
		conn := c.Conn
		if secure, ok := conn.(*tls.Conn); ok { // of DialTLSContext
			conn = secure.NetConn()
		}
		if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok && c.serves.Load() != nil {
			_ = tcp.SetLinger(0)
		}
		c.err = c.Conn.Close()
	})
	return c.err
}

// Write implements net.Conn.
func (c *fencedConn) Write(p []byte) (int, error) {
	if now := c.entitled(); now == 0 || now != c.under {
		c.serves.Store(new(use)) // whatever it carries is broken off
		_ = c.Close()
		return 0, ErrLost
	}
	return c.Conn.Write(p)
}

type fencedTransport struct{ base *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	slot := FromContext(r.Context())
	err := errNoSlot
	switch {
	case slot == nil:
	case !slot.Valid():
		err = ErrLost
	default:
		err = nil
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	under := new(use)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			conn := fencedBelow(info.Conn)
			under.begin(conn)
			if !slot.Valid() {
				_ = conn.Close() // this is a second attempt, under a lease that is not the slot's
			}
		},
		PutIdleConn: func(err error) {
			if err == nil {
				under.over()
				under.Store(nil)
			}
		},
	}))
	if _, given := r.Header["Kgate-Fence"]; !given {
		r.Header = r.Header.Clone()
		r.Header["Kgate-Fence"] = []string{slot.Fence()}
	}
	res, err := t.base.RoundTrip(r)
	switch {
	case err != nil || under.Load() == nil:
	case res.ProtoMajor == 1 && res.StatusCode != http.StatusSwitchingProtocols:
		res.Body = &fencedBody{ReadCloser: res.Body, under: under}
	default:
		under.over()
	}
	return res, err
}

// fencedBody is a response's body over HTTP/1. Closing one that has more to come breaks
// its connection off: net/http does so too, but only after its own Close has returned.
type fencedBody struct {
	io.ReadCloser
	under *use
}

// Read implements io.Reader.
func (b *fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.under.over()
	}
	return n, err
}

// Close implements io.Closer.
func (b *fencedBody) Close() error {
	err := b.ReadCloser.Close()
	if conn := b.under.Swap(nil); conn != nil {
		_ = conn.Close()
	}
	return err
}

// fencedBelow returns the connection of ours that is below TLS, or below that of a proxy.
func fencedBelow(conn net.Conn) *fencedConn {
	for {
		switch c := conn.(type) {
		case *fencedConn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return &fencedConn{Conn: conn} // never: all are dialed here
		}
	}
}

// CloseIdleConnections is what http.Client looks for.
func (t *fencedTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }
