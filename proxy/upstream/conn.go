package upstream

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// conn is a fenced connection. A gateway that was stopped, or cut off for longer
// than its lease, may have requests in flight no more, and finds out late: between
// a check and the write it may have slept for minutes. So the check stands right
// before the write. All slots of a gateway end together when its right to have any
// ends, so a connection need not know whose bytes it carries, and HTTP/1.1,
// HTTP/2, TLS and upgraded connections are guarded alike.
//
// It embeds the interface and not the TCP connection, whose ReadFrom would be a
// way around Write.
type conn struct {
	net.Conn
	client   *Client
	standing uint64
	reads    deadline.Reader
	rate     int64 // for which the server is held back; of one exchange at a time

	mu   sync.Mutex
	gone bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.reads.Read(c.Conn, p) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.reads.Set(c.Conn, t) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Write implements net.Conn. It sends nothing when the standing is over.
func (c *conn) Write(p []byte) (int, error) {
	if c.client.cfg.Standing() != c.standing {
		return 0, ErrLapsed
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the sending side.
func (c *conn) CloseWrite() error { return tcpstate.CloseWrite(c.Conn) }

// Close implements net.Conn. When it returns the socket is closed, by this call or another.
func (c *conn) Close() error { return c.end(false) }

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// closeInOrder closes the connection once the server's system has all that was written,
// or when somebody else closes it. An end that is still to be delivered would let the
// server go on for as long.
func (c *conn) closeInOrder() {
	for pause := time.Millisecond; !tcpstate.IsDelivered(c.Conn) && !c.isClosed(); pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
	_ = c.Close()
}

// reset closes the connection and drops what has not left the kernel. The server
// learns of it at once.
func (c *conn) reset() { _ = c.end(true) }

func (c *conn) end(reset bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil
	}
	c.gone = true
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok && reset {
		_ = tcp.SetLinger(0)
	}
	err := c.Conn.Close()
	c.client.forget(c)
	return err
}
