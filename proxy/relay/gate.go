package relay

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Gate writes to a connection, and asks right before each system call whether it may.
// Net's own Write goes on after it has waited for room, minutes later if the process was
// stopped meanwhile. Where the connection is no socket, or the system no Unix, it
// asks before each Write.
type Gate struct {
	conn    net.Conn
	allowed func() error
	raw     syscall.RawConn       // nil: there is none
	step    func(fd uintptr) bool // send
	wait    func(fd uintptr) bool // sendAndWait

	mu     sync.Mutex
	left   []byte // of a Write
	err    error
	silent bool // the other side must not have said anything before the next byte is sent
	waits  bool // sendAndWait has begun
	spoken [1]byte
}

// ErrSpoke is returned by a Write in place of sending anything, see [Gate.Begin].
var ErrSpoke = errors.New("relay: the other side has spoken first, or has closed the connection")

// NewGate returns a Gate for conn. Allowed must not close conn.
func NewGate(conn net.Conn, allowed func() error) *Gate {
	g := &Gate{conn: conn, allowed: allowed}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn: // others may do more than a system call
		if gatesCalls {
			g.raw, _ = conn.(syscall.Conn).SyscallConn()
			g.step, g.wait = g.send, g.sendAndWait // made once, and not by each Write
		}
	}
	return g
}

// Write implements io.Writer. The error may be what allowed has returned.
func (g *Gate) Write(p []byte) (int, error) {
	if g.raw == nil {
		if err := g.allowed(); err != nil {
			return 0, err
		}
		return g.conn.Write(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.err = p, nil
	return g.finish(p)
}

// Begin makes the next Write fail with [ErrSpoke] if there is anything to be read then, or the
// connection is closed: the other side is to wait until it is spoken to. What could be read is lost.
func (g *Gate) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = true
}

// Ask is a Write of something that has an answer. If all is sent it waits until there is something to
// read, or a deadline has passed: a Read that comes too early costs a system call.
func (g *Gate) Ask(p []byte) (int, error) {
	if g.raw == nil {
		return g.Write(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.err, g.waits = p, nil, false
	_ = g.raw.Read(g.wait) // its error is that of the next Read, too
	return g.finish(p)
}

// finish writes what is left of p, and ends the Write.
func (g *Gate) finish(p []byte) (n int, err error) {
	if len(g.left) > 0 && g.err == nil {
		err = g.raw.Write(g.step)
	}
	n = len(p) - len(g.left)
	g.left = nil
	if err == nil {
		err = g.err
	}
	return n, err
}
