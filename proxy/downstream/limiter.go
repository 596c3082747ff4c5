package downstream

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
)

// limiter bounds how many connections clients have, over all listeners of a
// server. When there are too many, the next one waits unserved, and others are asked to make
// room: those that have sent no whole request, those that only drain, and kept ones between two
// requests.
type limiter struct {
	limit   int // 0: none
	logger  *slog.Logger
	once    oncelog.Limit
	waiting atomic.Int32 // connections for which there is no room
	ending  atomic.Bool  // no connection is kept for longer than lastRequest

	mu       sync.Mutex
	changed  sync.Cond // somebody has left or become idle, or a listener is closed
	open     int
	fresh    newcomers
	idle     line        // the longest idle first
	drained  line        // the longest drained first
	leaving  int         // of open, those that have been asked to leave
	sessions int         // TCP connections that the handler serves
	ripens   *time.Timer // until the next one may be asked to leave; nil: nobody waits for that

	lastRequest time.Duration // see windDown
	ended       bool          // every connection is to be closed at once
}

const (
	// keptFor is how long a connection waits for a request before it has to make room. The next
	// one comes sooner as a rule, and one that crosses the end of its connection is lost.
	keptFor = 100 * time.Millisecond
	// freshFor is how long a new connection has for its first request before it makes room ahead
	// of those that have sent one.
	freshFor = time.Second
	// lastRequestTime is how long each connection has for one more request when the server ends.
	lastRequestTime = time.Second
)

// keeper is a connection that can be asked to leave. A connection that has sent no whole request
// makes room by its end. One that is kept and closed while a request comes over it loses that
// request, and its client cannot know whether anybody has acted on it. So the limiter closes none:
// it asks, and the reader of the connection, who alone knows what has come, decides. Neither
// method blocks.
type keeper interface {
	askToLeave()
	askToStay() // takes that back
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
	if c.limit > 0 && c.open >= c.limit {
		c.waiting.Add(1)
		for c.open >= c.limit && !l.closed {
			c.makeRoomLocked()
			c.changed.Wait()
		}
		c.waiting.Add(-1)
	}
	c.open++
	c.becomesLocked(e, fresh)
}

// makeRoomLocked asks connections to leave, until as many are leaving as wait. If many are idle it
// asks some more of those: leaving takes a while, and clients that are not accepted yet are not
// counted. When the server ends, all have to leave.
func (c *limiter) makeRoomLocked() {
	const oneIn, most = 8, 32
	for {
		e, left := c.nextLocked()
		if e == nil {
			if left > 0 && c.ripens == nil {
				c.ripens = time.AfterFunc(left, c.ripened)
			}
			if c.leaving+c.idle.n+c.drained.n == 0 && !c.ending.Load() && c.once.First("full") {
				c.logger.Warn("as many connections are open as listen.max_connections allows: further clients wait",
					slog.Int("connections", c.open))
			}
			return
		}
		enough := int(c.waiting.Load())
		if e.role == idle {
			enough += min(c.idle.n/oneIn, most)
		}
		if c.leaving >= enough && !c.ending.Load() {
			return
		}
		c.outLocked(e)
		e.leaving = true
		c.leaving++
		e.conn.askToLeave()
	}
}

// nextLocked returns the connection that has to leave first: any that has sent no request for
// freshFor, then the one that drains for longest, then the longest idle one, then any that has sent
// none and is not the only such one of its address. There is none before its time; left is how long
// that is, 0 if none will be.
func (c *limiter) nextLocked() (next *entry, left time.Duration) {
	var drained, crowd *entry
	if !c.ending.Load() { // the end waits for those
		drained = c.drained.first
	}
	fresh, several := c.fresh.first()
	if several {
		crowd = fresh
	}
	freshFor, keptFor := freshFor, keptFor
	if c.ending.Load() {
		freshFor, keptFor = c.lastRequest, c.lastRequest
	}
	now := time.Now()
	for _, is := range []struct {
		e    *entry
		free time.Duration // of leaving
	}{{fresh, freshFor}, {drained, keptFor}, {c.idle.first, keptFor}, {crowd, keptFor}} {
		if is.e == nil {
			continue
		}
		wait := is.free - now.Sub(is.e.since)
		if wait <= 0 {
			return is.e, 0
		}
		if left == 0 || wait < left {
			left = wait
		}
	}
	return nil, left
}

// ripened asks those to leave who may be asked now.
func (c *limiter) ripened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ripens = nil
	if c.changed.Broadcast(); c.ending.Load() {
		c.makeRoomLocked()
	}
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
	c.becomesLocked(e, busy)
	c.open--
	c.changed.Broadcast()
}

// becomes notes what a connection is from now on. If it has been asked to leave, it need not.
func (c *limiter) becomes(e *entry, r role) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.gone {
		c.becomesLocked(e, r)
	}
}

func (c *limiter) becomesLocked(e *entry, r role) {
	c.outLocked(e)
	e.role = r
	switch r {
	case busy:
		return
	case fresh:
		e.since = time.Now()
		c.fresh.add(e)
	case idle:
		e.since = time.Now()
		c.idle.add(e)
	case drained:
		e.since = time.Now()
		c.drained.add(e)
	}
	if c.changed.Broadcast(); c.ending.Load() && r != drained {
		c.makeRoomLocked()
	}
}

// outLocked takes a connection out of its line. If it has been asked to leave, it need not.
func (c *limiter) outLocked(e *entry) {
	switch {
	case e.in == nil:
	case e.role == fresh:
		c.fresh.remove(e)
	default:
		e.in.remove(e)
	}
	if e.leaving {
		e.leaving = false
		c.leaving--
		e.conn.askToStay()
		c.changed.Broadcast()
	}
}

// stays notes that a connection which has been asked to leave has something to say. The server
// waits for the rest of that from now on.
func (c *limiter) stays(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.leaving {
		c.becomesLocked(e, e.role)
	}
}

// is reports whether a connection has this role.
func (c *limiter) is(e *entry, r role) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.role == r
}

// beginSession notes that the handler serves a TCP connection.
func (c *limiter) beginSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions++
}

// endSession notes that the handler has done with one.
func (c *limiter) endSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions--
	c.changed.Broadcast()
}

// windDown has every connection that waits for a request leave, when it has had this long for it.
func (c *limiter) windDown(lastRequest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending.Store(true)
	c.lastRequest = lastRequest
	if c.ripens != nil {
		c.ripens.Stop()
		c.ripens = nil
	}
	c.makeRoomLocked()
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
