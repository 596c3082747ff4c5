package downstream

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a request of HTTP/1. It ends with the request, when its client
// leaves, and with the server. Package context's has a channel, and is known to the server's; this
// one is made such only when somebody asks for its end.
type requestContext struct {
	conn *Conn

	mu     sync.Mutex
	inner  context.Context // nil: nobody has asked
	cancel context.CancelFunc
	ended  bool
}

var _ context.Context = (*requestContext)(nil)

// Deadline implements context.Context: there is none.
func (c *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(c.conn.listener.base)
		if c.ended {
			c.cancel()
		}
	}
	return c.inner.Done()
}

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.ended:
		return context.Canceled
	default:
		return c.conn.listener.base.Err()
	}
}

// Value implements context.Context. Package context asks inner, once there is one, who its
// children are.
func (c *requestContext) Value(key any) any {
	switch key {
	case connKey{}:
		return net.Conn(c.conn)
	case http.LocalAddrContextKey:
		return c.conn.LocalAddr()
	}
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner == nil {
		inner = c.conn.listener.base
	}
	return inner.Value(key)
}

// end ends it. It may be called again, and does not block.
func (c *requestContext) end() {
	c.mu.Lock()
	c.ended = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
