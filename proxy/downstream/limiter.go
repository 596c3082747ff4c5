package downstream

import (
	"container/list"
	"context"
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
// without a request are asked to leave, those that have been idle for longest first: see
// kept.go. Slow ones end when the time for their header is over.
type limiter struct {
	limit   int           // 0: none
	silence time.Duration // after which an HTTP/2 connection without a request is idle
	logger  *slog.Logger
	once    oncelog.Limit
	waiting atomic.Int32 // connections for which there is no room

	mu       sync.Mutex
	changed  sync.Cond // somebody has left or become idle, or a listener is closed
	open     int
	fresh    int         // of open, those that have sent no request yet
	leaving  int         // of open, those that have been asked to leave
	sessions int         // TCP connections that the handler serves
	idle     list.List   // of *entry, the longest idle first
	ripens   *time.Timer // until the first of idle has been so for keptFor; nil: nobody waits for that
	ended    bool        // every connection is to be closed at once
}

// keptFor is how long a connection is idle before it has to make room. The next request
// comes sooner as a rule, and one that crosses the end of its connection is lost.
const keptFor = 100 * time.Millisecond

// entry is a connection as the limiter knows it. limiter.mu guards its fields; fresh and kept may
// be read without it.
type entry struct {
	conn    keeper
	gone    bool
	fresh   atomic.Bool   // it has sent no request yet
	kept    atomic.Bool   // it waits for a request
	idle    *list.Element // its place in limiter.idle; nil: it has none
	since   time.Time     // when it got it
	silent  *time.Timer   // until it gets one; nil: it has no such time
	leaving bool          // it has been asked to leave
}

func newLimiter(limit int, silence time.Duration, logger *slog.Logger) *limiter {
	c := &limiter{limit: limit, silence: silence, logger: logger}
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
	if c.limit > 0 && c.open >= c.limit {
		c.waiting.Add(1)
		for c.open >= c.limit && !l.closed {
			c.makeRoomLocked()
			c.changed.Wait()
		}
		c.waiting.Add(-1)
	}
	c.open++
	c.fresh++
	e.fresh.Store(true)
}

// makeRoomLocked asks idle connections to leave, until as many are leaving as wait. If many are
// idle it asks some more: leaving takes a while, and clients that are not accepted yet are not counted.
func (c *limiter) makeRoomLocked() {
	const oneIn, most = 8, 32
	for c.leaving < int(c.waiting.Load())+min(c.idle.Len()/oneIn, most) {
		longest := c.idle.Front()
		if longest == nil {
			if c.leaving == 0 && c.once.First("full") {
				c.logger.Warn("as many connections are open as listen.max_connections allows: further clients wait",
					slog.Int("connections", c.open))
			}
			return
		}
		e := longest.Value.(*entry)
		if left := keptFor - time.Since(e.since); left > 0 {
			if c.ripens == nil {
				c.ripens = time.AfterFunc(left, c.ripened)
			}
			return
		}
		c.idle.Remove(longest)
		e.idle, e.leaving = nil, true
		c.leaving++
		e.conn.askToLeave()
	}
}

func (c *limiter) ripened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ripens = nil
	c.changed.Broadcast()
}

// isFull reports whether clients wait for others to leave.
func (c *limiter) isFull() bool { return c.waiting.Load() > 0 }

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

// busyLocked notes that a connection does not wait for a request. If it has been asked to
// leave, it need not.
func (c *limiter) busyLocked(e *entry) {
	e.kept.Store(false)
	if e.silent != nil {
		e.silent.Stop()
		e.silent = nil
	}
	if e.idle != nil {
		c.idle.Remove(e.idle)
		e.idle = nil
	}
	if e.leaving {
		e.leaving = false
		c.leaving--
		e.conn.askToStay()
		c.changed.Broadcast()
	}
}

func (c *limiter) idleLocked(e *entry) {
	e.idle, e.since = c.idle.PushBack(e), time.Now()
	c.changed.Broadcast()
}

// heard notes that a request has begun to come over a connection that was kept, which net/http
// says when its header is complete.
func (c *limiter) heard(e *entry) {
	if !e.kept.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyLocked(e)
}

// stays notes that a connection which has been asked to leave has something to say. It is idle
// from now on.
func (c *limiter) stays(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.leaving {
		c.busyLocked(e)
		e.kept.Store(true)
		c.idleLocked(e)
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
	if state == http.StateNew || state == http.StateActive {
		c.heard(e) // for the first request see served
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyLocked(e)
	first := e.fresh.Load()
	c.openedLocked(e)
	if state != http.StateIdle || e.gone {
		return
	}
	e.kept.Store(true)
	if !first {
		c.idleLocked(e)
		return
	}
	// Only the preface of HTTP/2 has come: the first request has the time of a header.
	var silent *time.Timer
	silent = time.AfterFunc(c.silence, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.silent == silent {
			e.silent = nil
			c.idleLocked(e)
		}
	})
	e.silent = silent
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
