package upstream

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/relay"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// conn is a fenced connection. A gateway that was paused, or cut off for longer
// than its lease, may no longer have requests in flight, and learns that late: it
// may have slept for minutes between a check and the write. So Write checks right
// before each system call that sends. All slots of a gateway end together when its right to have any
// ends, so HTTP/1.1, HTTP/2, TLS and upgraded connections are guarded alike. Who has a
// connection to itself may have less time, see Bounded.
//
// Unless it is closed in order the system resets it, also when the process is killed:
// otherwise the server would go on to read what this system has of a request, and the
// lease of the one who sent it may be over.
//
// It embeds the interface and not the TCP connection, whose ReadFrom would bypass
// Write.
type conn struct {
	net.Conn
	current  func() uint64 // the standing now
	standing uint64
	onClose  func(*conn)
	reads    deadline.Reader
	writes   *relay.Gate
	sent     uint64  // bytes, by Write
	sender   Bounded // whose bytes it carries, if it may have less time; else nil
	rate     int64   // to which the server is held back, for one exchange at a time
	held     bool    // its receive buffer has a size of ours
	narrow   bool    // and that is too small for its rate now, for good

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

// newConn returns a connection of a standing. OnClose is called when it is closed.
func newConn(socket net.Conn, current func() uint64, standing uint64, onClose func(*conn)) *conn {
	c := &conn{Conn: socket, current: current, standing: standing, onClose: onClose}
	c.writes = relay.NewGate(socket, c.maySend)
	return c
}

// Write implements net.Conn. It sends nothing when the standing is over, or the sender's time.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.writes.Write(p)
	c.sent += uint64(n)
	return n, err
}

// ask is a Write of a whole request in the clear. As a rule its answer has come when it returns.
func (c *conn) ask(p []byte) (int, error) {
	n, err := c.writes.Ask(p)
	c.sent += uint64(n)
	return n, err
}

// maySend returns ErrLapsed if nothing may be sent.
func (c *conn) maySend() error {
	if c.sender != nil && !c.sender.MaySend() {
		return ErrLapsed
	}
	return c.check()
}

// check returns ErrLapsed if the standing is over.
func (c *conn) check() error {
	if c.current() != c.standing {
		return ErrLapsed
	}
	return nil
}

// CloseWrite closes the sending side.
func (c *conn) CloseWrite() error { return tcpstate.CloseWrite(c.Conn) }

// Close implements net.Conn. When it returns the socket is closed, by this call or another.
func (c *conn) Close() error { return c.end(false) }

// isClosed reports whether the connection is closed.
func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
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
	if !reset && c.check() == nil { // net/http closes in order also what it may not write to
		tcpstate.ResetOnClose(c.Conn, false)
	}
	err := c.Conn.Close()
	c.onClose(c)
	return err
}

// isEnd reports whether err says that the server has ended the connection. After a timeout, or
// an end by this side, the server may still be at work on what it got.
func isEnd(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
