package proxy

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/kgate/kgate/oncelog"
)

// crowd is the clients' connections, of all listeners of a server. When there are
// too many, the next one waits unserved; kept connections on which no request is
// under way are closed to make room, those that have been idle for longest first.
// Slow ones leave by themselves when their header's time is over.
type crowd struct {
	limit  int // 0: none
	logger *slog.Logger
	once   oncelog.Limit

	mu      sync.Mutex
	changed sync.Cond // somebody has left or become idle, or a listener is closed
	open    int
	idle    list.List // of *clientConn, the longest idle first
}

func newCrowd(limit int, logger *slog.Logger) *crowd {
	c := &crowd{limit: limit, logger: logger}
	c.changed.L = &c.mu
	return c
}

// clientConn is a client's connection, counted until it is closed.
type clientConn struct {
	net.Conn          // speaks the PROXY protocol, if it must
	raw      net.Conn // as it was accepted
	crowd    *crowd

	gone bool          // guarded by crowd.mu, as the next one
	idle *list.Element // its place in crowd.idle; nil: it is busy
}

// NetConn returns the connection as it was accepted, which the kernel knows.
func (c *clientConn) NetConn() net.Conn { return c.raw }

// CloseWrite lets half-closed upgraded connections be.
func (c *clientConn) CloseWrite() error { return closeWrite(c.raw) }

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.crowd.leave(c)
	return c.Conn.Close()
}

// leave forgets a connection. It may be called again.
func (c *crowd) leave(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.gone {
		return
	}
	conn.gone = true
	c.busyLocked(conn)
	c.open--
	c.changed.Broadcast()
}

func (c *crowd) busyLocked(conn *clientConn) {
	if conn.idle != nil {
		c.idle.Remove(conn.idle)
		conn.idle = nil
	}
}

// state is the server's ConnState.
func (c *crowd) state(conn net.Conn, state http.ConnState) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if _, ours := conn.(*clientConn); !ours { // TLS
			conn = wrapped.NetConn()
		}
	}
	client, ok := conn.(*clientConn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyLocked(client)
	if state == http.StateIdle && !client.gone {
		client.idle = c.idle.PushBack(client)
		c.changed.Broadcast()
	}
}

// crowdListener lets connections of one listener into the crowd.
type crowdListener struct {
	net.Listener
	crowd  *crowd
	closed bool // guarded by crowd.mu
}

// listen returns l with its connections counted, and with those from the prefixes
// obliged to say in a PROXY header whom they come from, within headerTime. What
// others send of that kind is not HTTP, and is answered so.
func (c *crowd) listen(l net.Listener, from []netip.Prefix, headerTime time.Duration) net.Listener {
	if len(from) > 0 {
		l = &proxyproto.Listener{Listener: l, ReadHeaderTimeout: headerTime, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if contains(from, o.Upstream.String()) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		}}
	}
	return &crowdListener{Listener: l, crowd: c}
}

// Accept implements net.Listener.
func (l *crowdListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	client := &clientConn{Conn: conn, raw: conn, crowd: l.crowd}
	if spoken, ok := conn.(*proxyproto.Conn); ok {
		client.raw = spoken.Raw()
	}
	if !l.crowd.enter(l) {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return client, nil
}

// enter waits for room. It returns false if the listener is closed meanwhile.
func (c *crowd) enter(l *crowdListener) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.limit > 0 && c.open >= c.limit && !l.closed {
		if longest := c.idle.Front(); longest != nil {
			conn := longest.Value.(*clientConn)
			c.mu.Unlock()
			_ = conn.Close()
			c.mu.Lock()
			continue
		}
		if c.once.First("full") {
			c.logger.Warn("as many clients are connected as may be (listen.max_connections); the next ones wait",
				slog.Int("connections", c.open))
		}
		c.changed.Wait()
	}
	if l.closed {
		return false
	}
	c.open++
	return true
}

// Close implements net.Listener.
func (l *crowdListener) Close() error {
	l.crowd.mu.Lock()
	l.closed = true
	l.crowd.changed.Broadcast()
	l.crowd.mu.Unlock()
	return l.Listener.Close()
}
