package proxy

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/kgate/kgate/internal/oncelog"
)

// connLimiter bounds how many connections clients have, over all listeners of a
// server. When there are too many, the next one waits unserved. Kept connections
// without a request are closed to make room, those that have been idle for longest
// first. Slow ones end when the time for their header is over.
type connLimiter struct {
	limit  int // 0: none
	logger *slog.Logger
	once   oncelog.Limit
	watch  *disconnectWatch // set before the first listener accepts

	mu      sync.Mutex
	changed sync.Cond // somebody has left or become idle, or a listener is closed
	open    int
	fresh   int       // of open, those that have sent no request yet
	idle    list.List // of *clientConn, the longest idle first
	ended   bool      // every connection is to be closed at once
}

func newConnLimiter(limit int, logger *slog.Logger) *connLimiter {
	c := &connLimiter{limit: limit, logger: logger}
	c.changed.L = &c.mu
	return c
}

// end has connections close at once.
func (c *connLimiter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *connLimiter) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// leave forgets a connection. It may be called again.
func (c *connLimiter) leave(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.gone {
		return
	}
	conn.gone = true
	c.busyLocked(conn)
	c.openedLocked(conn)
	c.open--
	c.changed.Broadcast()
}

func (c *connLimiter) busyLocked(conn *clientConn) {
	if conn.idle != nil {
		c.idle.Remove(conn.idle)
		conn.idle = nil
	}
}

// opened notes that conn needs no first request.
func (c *connLimiter) opened(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openedLocked(conn)
}

// openedLocked notes that conn has sent its first request, or is closed.
func (c *connLimiter) openedLocked(conn *clientConn) {
	if conn.fresh {
		conn.fresh = false
		c.fresh--
		c.changed.Broadcast()
	}
}

// awaitFirstRequests waits until every connection has sent a request, for limit at
// most.
func (c *connLimiter) awaitFirstRequests(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.fresh > 0 && ctx.Err() == nil {
		c.changed.Wait()
	}
}

// state is the server's ConnState.
func (c *connLimiter) state(conn net.Conn, state http.ConnState) {
	client, _ := unwrapConn(conn)
	if client == nil {
		return
	}
	if state == http.StateIdle {
		client.idled()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyLocked(client)
	if state != http.StateNew {
		c.openedLocked(client)
	}
	if state == http.StateIdle && !client.gone {
		client.idle = c.idle.PushBack(client)
		c.changed.Broadcast()
	}
}

// logRefusal notes an answer that net/http has given to what is no request. A client
// can cause as many as it likes: of each kind there is a line a minute.
func (c *connLimiter) logRefusal(remote net.Addr, status string) {
	if suppressed, ok := c.once.Allow("refused " + status); ok {
		c.logger.Info("request refused", slog.String("remote", remote.String()), slog.String("status", status), slog.Int("suppressed", suppressed))
	}
}

// limitedListener has the limiter count the connections of one listener.
type limitedListener struct {
	net.Listener
	limiter *connLimiter
	closed  bool // guarded by limiter.mu
	// frameTime bounds HTTP/2 frames; 0: the layer above does.
	frameTime time.Duration
}

// listen returns l with its connections counted. Those from the prefixes must say
// in a PROXY header whom they come from, within headerTime; what others send of
// that kind is not HTTP, and is answered so.
func (c *connLimiter) listen(l net.Listener, from []netip.Prefix, headerTime time.Duration) *limitedListener {
	if len(from) > 0 {
		l = &proxyproto.Listener{Listener: l, ReadHeaderTimeout: headerTime, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if contains(from, o.Upstream.String()) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		}}
	}
	return &limitedListener{Listener: l, limiter: c}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	client := &clientConn{Conn: conn, raw: conn, limiter: l.limiter, fresh: true}
	if l.frameTime > 0 {
		client.frames = &frameTimer{limit: l.frameTime}
	}
	if spoken, ok := conn.(*proxyproto.Conn); ok {
		client.raw = spoken.Raw()
	}
	l.limiter.enter(l)
	err = l.limiter.watch.add(client)
	client.watched = err == nil
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		if suppressed, ok := l.limiter.once.Allow("watch"); ok { // it is served all the same
			l.limiter.logger.Warn("a connection cannot be watched: it may be noticed late when its client leaves",
				slog.Any("error", err), slog.Int("suppressed", suppressed))
		}
	}
	return client, nil
}

// enter waits for room. When the listener is closed, it waits no longer: the client
// has been accepted, and is served as others that were.
func (c *connLimiter) enter(l *limitedListener) {
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
			c.logger.Warn("as many connections are open as listen.max_connections allows: further clients wait",
				slog.Int("connections", c.open))
		}
		c.changed.Wait()
	}
	c.open++
	c.fresh++
}

// Close implements net.Listener. It may be called again.
func (l *limitedListener) Close() error {
	l.limiter.mu.Lock()
	closed := l.closed
	l.closed = true
	l.limiter.changed.Broadcast()
	l.limiter.mu.Unlock()
	if closed {
		return nil
	}
	return l.Listener.Close()
}
