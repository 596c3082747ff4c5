package downstream

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
)

// limiter bounds how many connections clients have, over all listeners of a
// server. When there are too many, the next one waits unserved. Kept connections
// without a request are closed to make room, those that have been idle for longest
// first. Slow ones end when the time for their header is over.
type limiter struct {
	limit  int // 0: none
	logger *slog.Logger
	once   oncelog.Limit

	mu       sync.Mutex
	changed  sync.Cond // somebody has left or become idle, or a listener is closed
	open     int
	fresh    int       // of open, those that have sent no request yet
	sessions int       // TCP connections that the handler serves
	idle     list.List // of *entry, the longest idle first
	ended    bool      // every connection is to be closed at once
}

// entry is a connection as the limiter knows it. limiter.mu guards its fields; fresh may be read
// without it.
type entry struct {
	conn  io.Closer
	gone  bool
	fresh atomic.Bool   // it has sent no request yet
	idle  *list.Element // its place in limiter.idle; nil: it is busy
}

func newLimiter(limit int, logger *slog.Logger) *limiter {
	c := &limiter{limit: limit, logger: logger}
	c.changed.L = &c.mu
	return c
}

// end makes connections close without lingering.
func (c *limiter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *limiter) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// connections returns how many connections are open.
func (c *limiter) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// enter counts a connection, once there is room for it. When its listener is closed, it
// waits no longer: the client has been accepted, and is served as others that were.
func (c *limiter) enter(e *entry, l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.limit > 0 && c.open >= c.limit && !l.closed {
		if longest := c.idle.Front(); longest != nil {
			conn := longest.Value.(*entry).conn
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
	e.fresh.Store(true)
}

// leave forgets a connection. It may be called again.
func (c *limiter) leave(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.gone {
		return
	}
	e.gone = true
	c.busyLocked(e)
	c.openedLocked(e)
	c.open--
	c.changed.Broadcast()
}

func (c *limiter) busyLocked(e *entry) {
	if e.idle != nil {
		c.idle.Remove(e.idle)
		e.idle = nil
	}
}

// served notes that the handler has a request of the connection, which net/http does not drop
// any more.
func (c *limiter) served(e *entry) {
	if !e.fresh.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openedLocked(e)
}

// openedLocked notes that a connection has sent its first request, or is closed.
func (c *limiter) openedLocked(e *entry) {
	if e.fresh.Load() {
		e.fresh.Store(false)
		c.fresh--
		c.changed.Broadcast()
	}
}

// state notes a connection's state in net/http's server.
func (c *limiter) state(e *entry, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyLocked(e)
	if state != http.StateNew && state != http.StateActive { // see served
		c.openedLocked(e)
	}
	if state == http.StateIdle && !e.gone {
		e.idle = c.idle.PushBack(e)
		c.changed.Broadcast()
	}
}

// beginSession notes that the handler serves a TCP connection. Such a one needs no first
// request.
func (c *limiter) beginSession(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openedLocked(e)
	c.sessions++
}

// endSession notes that the handler has done with one.
func (c *limiter) endSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions--
	c.changed.Broadcast()
}

// awaitFirstRequests waits until every connection has sent a request, for limit at
// most.
func (c *limiter) awaitFirstRequests(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = c.await(ctx, func() bool { return c.fresh == 0 })
}

// awaitEnd waits until every connection is closed, and the handler has done with all of
// TCP. The error is ctx's.
func (c *limiter) awaitEnd(ctx context.Context) error {
	return c.await(ctx, func() bool { return c.open == 0 && c.sessions == 0 })
}

// await waits until reached, which it calls with mu held, or until ctx ends.
func (c *limiter) await(ctx context.Context, reached func() bool) error {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !reached() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.changed.Wait()
	}
	return nil
}

// logRefusal notes an answer that net/http has given to what is no request. A client
// can cause as many as it likes: of each kind there is a line a minute.
func (c *limiter) logRefusal(remote net.Addr, status string) {
	if suppressed, ok := c.once.Allow("refused " + status); ok {
		c.logger.Info("request refused", slog.String("remote", remote.String()), slog.String("status", status), slog.Int("suppressed", suppressed))
	}
}
