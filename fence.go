package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/kgate/kgate/proxy/relay"
	"github.com/kgate/kgate/proxy/tcpstate"
)

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
		c := &fencedConn{Conn: conn, entitled: entitled, under: under}
		c.writes = relay.NewGate(conn, c.lapsed)
		tcpstate.ResetOnClose(c.socket(), true) // unless it is closed in order: the process may be killed
		return c, nil
	}
}

// errDialTLS is returned if a DialTLSContext agrees on HTTP/2, for which net/http needs the
// *tls.Conn itself.
var errDialTLS = errors.New("kgate: DialTLSContext has agreed on HTTP/2, which cannot be fenced: set DialContext instead, or remove h2 from the NextProtos")

// fencedConn writes under one lease only.
type fencedConn struct {
	net.Conn
	entitled func() uint64
	under    uint64
	writes   *relay.Gate
	serves   atomic.Pointer[use] // the request over HTTP/1 that is in flight
	handing  sync.Mutex          // of the connection from one request to the next
	shared   bool                // by requests over HTTP/2
	onClose  func()              // nil: nothing
	once     sync.Once           // of Close
	closed   atomic.Bool         // Close was called
	err      error
}

// use is the connection that a request uses; nil once it serves other requests.
type use struct {
	atomic.Pointer[fencedConn]
	upload  *upload     // nil: the request has no body that may wait
	written atomic.Bool // the whole request
}

// begin notes that the request is in flight over conn.
func (u *use) begin(conn *fencedConn) {
	conn.handing.Lock()
	defer conn.handing.Unlock()
	u.Store(conn)
	conn.serves.Store(u)
}

// breakOff closes the connection that the request uses, unless another one has it.
func (u *use) breakOff() {
	conn := u.Load()
	if conn == nil {
		return
	}
	conn.handing.Lock()
	defer conn.handing.Unlock()
	if conn.serves.Load() == u {
		_ = conn.Close()
	}
}

// over notes that the request's part of the connection is over. Another one may have it
// already: net/http hands an idle connection on before it says that it is idle.
func (u *use) over() {
	if conn := u.Load(); conn != nil {
		conn.serves.CompareAndSwap(u, nil)
	}
}

// socket returns the connection below TLS.
func (c *fencedConn) socket() net.Conn {
	if secure, ok := c.Conn.(*tls.Conn); ok { // of DialTLSContext
		return secure.NetConn()
	}
	return c.Conn
}

// Close implements net.Conn. Whoever calls it, the connection is closed when it returns,
// and reset if a request is in flight: otherwise the system would go on to send what it
// has of the request's body.
func (c *fencedConn) Close() error {
	c.once.Do(func() {
		c.closed.Store(true)
		u := c.serves.Load()
		if u == nil {
			tcpstate.ResetOnClose(c.socket(), false)
		} else if c.socket() != c.Conn {
			_ = c.socket().Close() // before TLS, which waits to say goodbye
		}
		c.err = c.Conn.Close()
		if u != nil && u.upload != nil {
			u.upload.stop()
		}
		if c.onClose != nil {
			c.onClose()
		}
	})
	return c.err
}

// IsClosed implements upstream.Socket.
func (c *fencedConn) IsClosed() bool { return c.closed.Load() }

// IsDelivered implements upstream.Socket.
func (c *fencedConn) IsDelivered() bool { return tcpstate.IsDelivered(c.socket()) }

// closeDelivered closes the connection, and resets it only if the server's system does not
// have all that was written.
func (c *fencedConn) closeDelivered() {
	if c.IsDelivered() {
		c.serves.Store(nil)
	}
	_ = c.Close()
}

// CloseWrite closes the sending side, if that is still allowed.
func (c *fencedConn) CloseWrite() error {
	if err := c.check(); err != nil {
		return err
	}
	return tcpstate.CloseWrite(c.Conn)
}

// Write implements net.Conn.
func (c *fencedConn) Write(p []byte) (int, error) {
	n, err := c.writes.Write(p)
	if errors.Is(err, ErrLost) {
		c.abort()
	}
	return n, err
}

// check closes the connection and returns ErrLost if nothing may be sent any more.
func (c *fencedConn) check() error {
	err := c.lapsed()
	if err != nil {
		c.abort()
	}
	return err
}

// lapsed returns ErrLost if nothing may be sent any more.
func (c *fencedConn) lapsed() error {
	if now := c.entitled(); now == 0 || now != c.under {
		return ErrLost
	}
	return nil
}

// abort closes the connection. Whatever it carries is aborted.
func (c *fencedConn) abort() {
	c.serves.CompareAndSwap(nil, new(use))
	_ = c.Close()
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
