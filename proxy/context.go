package proxy

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/upstream"
)

// exchangeContext is the context of one request, and leads from the request to its
// exchange. It does what a context of package context does, for a fifth of the
// cost: its channel is made only when somebody asks for it, and a connection that
// is to be closed with it needs no registration.
type exchangeContext struct {
	ex   *exchange
	base context.Context // of the server's request

	mu     sync.Mutex
	leave  func() bool // ends the registration with the parent; nil: there is none
	done   chan struct{}
	ended  bool
	cause  error
	after  map[*func()]struct{} // that are to be called
	closer io.Closer            // to be closed; nil: none
}

var (
	_ context.Context    = (*exchangeContext)(nil)
	_ upstream.Context   = (*exchangeContext)(nil)
	_ downstream.Watcher = (*exchangeContext)(nil)
)

type exchangeKey struct{}

func exchangeIn(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

// Value implements context.Context.
func (c *exchangeContext) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return c.ex
	}
	return c.base.Value(key)
}

// Deadline implements context.Context.
func (c *exchangeContext) Deadline() (time.Time, bool) { return c.base.Deadline() }

// Done implements context.Context.
func (c *exchangeContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context. What has ended the parent ends c at once: a
// caller that finds the client's connection broken may ask before the parent has ended c.
func (c *exchangeContext) Err() error {
	if c.base.Err() != nil {
		c.cancelWithParent()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return context.Canceled
	}
	return nil
}

// Cause implements upstream.Context: it returns what cancel was given, or else Err.
func (c *exchangeContext) Cause() error {
	err := c.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// AfterFunc is what package context looks for in the parent of a context. Without it
// each child would cost a goroutine.
func (c *exchangeContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		go f()
		return func() bool { return false }
	}
	mine := &f
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	c.after[mine] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.after[mine]
		delete(c.after, mine)
		return waits
	}
}

// follow makes the exchange end with the request of the server.
func (c *exchangeContext) follow() {
	leave := context.AfterFunc(c.base, c.cancelWithParent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave = leave
}

// watchClient cancels the exchange when its client leaves. UnwatchClient must be called with what
// it returns, which is nil where the connection does it.
func (ex *exchange) watchClient(r *http1.Request) (stop func()) {
	if !ex.http1 || ex.conn == nil {
		ex.ctx.follow()
		return downstream.PollDisconnect(ex.ctx.base, r, &ex.ctx)
	}
	ex.conn.Watch(&ex.ctx)
	return nil
}

// unwatchClient ends what watchClient began.
func (ex *exchange) unwatchClient(stop func()) {
	if stop == nil {
		ex.conn.Unwatch()
		return
	}
	stop()
}

// ClientLeft implements downstream.Watcher. A half-closed connection may still carry an upgrade.
func (c *exchangeContext) ClientLeft() {
	if !c.ex.hijacked.Load() {
		c.cancelWithParent()
	}
}

// cancelWithParent ends the context because the client has left, or because the server has stopped.
func (c *exchangeContext) cancelWithParent() {
	if context.Cause(c.base) == downstream.ErrStopped {
		c.cancel(errStops)
		return
	}
	c.cancel(nil)
}

// isStopped reports whether the server has ended it.
func (c *exchangeContext) isStopped() bool {
	return c.Cause() == error(errStops)
}

// cancel ends the context; the first cause counts. It never blocks, as ClientLeft
// must not: the attached connection is closed soon after.
func (c *exchangeContext) cancel(cause error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.cause = true, cause
	if c.done != nil {
		close(c.done)
	}
	after, closer, leave := c.after, c.closer, c.leave
	c.after, c.closer, c.leave = nil, nil, nil
	c.mu.Unlock()
	if closer != nil {
		go func() { _ = closer.Close() }() // waits for the reads and writes that it ends
	}
	for f := range after {
		go (*f)()
	}
	if leave != nil {
		leave()
	}
}

// Attach implements upstream.Context.
func (c *exchangeContext) Attach(closer io.Closer) {
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.closer = closer
	}
	c.mu.Unlock()
	if ended {
		_ = closer.Close()
	}
}

// Detach implements upstream.Context.
func (c *exchangeContext) Detach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	attached := c.closer != nil
	c.closer = nil
	return attached
}
