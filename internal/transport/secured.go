package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/peercert"
)

// secured are the open connections over TLS. One whose certificate is no longer good can
// be closed. The zero value is empty and ready.
type secured struct {
	mu    sync.Mutex
	conns map[*securedConn]*tls.Conn // since their handshakes
}

// verified is a pair of configurations that accepted a certificate, and until when
// the certificate is good.
type verified struct {
	by    *tlsPair
	until time.Time
}

// securedConn is a connection to a peer, or what lies below TLS.
type securedConn struct {
	net.Conn
	socket atomic.Pointer[socket] // see unblock
	of     *secured
	last   verified // used by review alone
	closed bool     // guarded by of.mu
	leave  func()   // called once when it is closed; guarded by of.mu
}

// unblock makes writes return at once from now on, and returns the socket that has to be
// flushed; nil if writes go on waiting.
func (c *securedConn) unblock() *socket {
	s := newSocket(c.Conn)
	c.socket.Store(s)
	return s
}

// Write implements net.Conn.
func (c *securedConn) Write(b []byte) (int, error) {
	if s := c.socket.Load(); s != nil {
		return s.Write(b)
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *securedConn) Close() error {
	c.of.mu.Lock()
	c.closed = true
	delete(c.of.conns, c)
	leave := c.leave
	c.leave = nil
	c.of.mu.Unlock()
	if leave != nil {
		leave()
	}
	return c.Conn.Close()
}

// onClose arranges for leave to be called when the connection is closed; at once if it is
// closed already.
func (c *securedConn) onClose(leave func()) {
	c.of.mu.Lock()
	closed := c.closed
	if !closed {
		c.leave = leave
	}
	c.of.mu.Unlock()
	if closed {
		leave()
	}
}

// below returns the connection to use in place of raw.
func (s *secured) below(raw net.Conn) *securedConn { return &securedConn{Conn: raw, of: s} }

// handshake makes TLS of raw, which below has returned, and keeps conn until raw
// is closed.
func (s *secured) handshake(ctx context.Context, raw *securedConn, conn *tls.Conn) (net.Conn, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return conn, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[*securedConn]*tls.Conn)
	}
	if !raw.closed {
		s.conns[raw] = conn
	}
	return conn, nil
}

// review closes the connections whose certificates the pair refuses now. A signature
// is checked once for each pair: later only the time counts. Calls must not overlap.
func (s *secured) review(pair *tlsPair, log *slog.Logger) {
	s.mu.Lock()
	open := make(map[*securedConn]*tls.Conn, len(s.conns))
	for below, conn := range s.conns {
		open[below] = conn
	}
	s.mu.Unlock()
	now := time.Now()
	for below, conn := range open {
		if below.last.by == pair && now.Before(below.last.until) {
			continue
		}
		state := conn.ConnectionState()
		until, err := pair.verify(state)
		if err == nil {
			below.last = verified{pair, until}
			continue
		}
		_ = below.Close() // not conn: TLS would send its close notify first, and could block
		log.Warn("connection to a peer closed: its certificate is no longer good",
			slog.String("remote", below.RemoteAddr().String()), slog.Any("names", peercert.Names(state.PeerCertificates[0])), slog.Any("error", err))
	}
}

// reviewInterval is how often open connections are reviewed: a certificate can end while
// it is in use.
const reviewInterval = 5 * time.Second

// reviewSecured closes connections whose certificates have ended, until Close.
func (t *Transport) reviewSecured() {
	ticker := time.NewTicker(reviewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		t.review()
	}
}

// review checks the open connections under the present configuration.
func (t *Transport) review() {
	t.reviewing.Lock()
	defer t.reviewing.Unlock()
	if pair := t.tls.Load(); pair != nil {
		t.secured.review(pair, t.config.Logger)
	}
}
