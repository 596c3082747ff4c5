package transport

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
)

// streamConn is a stream as a net.Conn. It has no half-closed state that a user could see.
type streamConn struct {
	s      *session
	stream *wire.Stream

	mu       sync.Mutex
	changed  chan struct{} // closed when any of the rest has changed
	in       []byte
	finished bool // nothing more comes
	broken   bool // the stream or its connection has ended
	closed   bool
	until    [2]time.Time // deadlines for reading and for writing
}

var _ net.Conn = (*streamConn)(nil)

// event takes in what the connection says of the stream.
func (c *streamConn) event(e *wire.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case wire.Data:
		c.in = append(c.in, e.Data...)
	case wire.Finished:
		c.finished = true
	case wire.Closed:
		c.broken = true
	default: // Writable
	}
	c.notify()
}

// notify wakes up all that wait. It is called under mu.
func (c *streamConn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

const (
	reading = iota
	writing
)

// wait waits for a change, or for a deadline. It is called under mu.
func (c *streamConn) wait(what int) error {
	changed, until := c.changed, c.until[what]
	c.mu.Unlock()
	defer c.mu.Lock()
	if until.IsZero() {
		<-changed
		return nil
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

// Read implements net.Conn.
func (c *streamConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	for len(c.in) == 0 || c.closed {
		var err error
		switch {
		case c.closed:
			err = net.ErrClosed
		case c.finished:
			err = io.EOF
		case c.broken:
			err = fmt.Errorf("%w: %s", ErrLinkDown, c.s.p.name)
		default:
			err = c.wait(reading)
		}
		if err != nil {
			c.mu.Unlock()
			return 0, err
		}
	}
	n := copy(b, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	c.mu.Unlock()
	c.do(func(w *wire.Conn) { w.Read(c.stream, n) })
	return n, nil
}

// do uses the connection, if it is still there.
func (c *streamConn) do(f func(*wire.Conn)) {
	p := c.s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == c.s {
		f(c.s.wire)
		if c.s.wire.Due() {
			c.s.wakeWriter()
		}
	}
}

// Write implements net.Conn.
func (c *streamConn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		c.mu.Lock()
		changed := c.changed
		broken := c.broken || c.closed
		c.mu.Unlock()
		if broken {
			return n, fmt.Errorf("%w: %s", ErrLinkDown, c.s.p.name)
		}
		took := 0
		c.do(func(w *wire.Conn) { took = w.Write(c.stream, b[n:]) })
		if n += took; took > 0 {
			continue
		}
		c.mu.Lock()
		if changed == c.changed {
			err = c.wait(writing)
		}
		c.mu.Unlock()
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close implements net.Conn. What was written still goes out; what comes is dropped. It never
// fails.
func (c *streamConn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.notify()
	c.mu.Unlock()
	c.do(func(w *wire.Conn) { w.Abandon(c.stream) })
	return nil
}

// LocalAddr implements net.Conn.
func (c *streamConn) LocalAddr() net.Addr { return c.s.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *streamConn) RemoteAddr() net.Addr { return c.s.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *streamConn) SetDeadline(t time.Time) error { return c.limit(t, reading, writing) }

// SetReadDeadline implements net.Conn.
func (c *streamConn) SetReadDeadline(t time.Time) error { return c.limit(t, reading) }

// SetWriteDeadline implements net.Conn.
func (c *streamConn) SetWriteDeadline(t time.Time) error { return c.limit(t, writing) }

func (c *streamConn) limit(t time.Time, what ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range what {
		c.until[w] = t
	}
	c.notify() // who waits looks at the new deadline
	return nil
}
