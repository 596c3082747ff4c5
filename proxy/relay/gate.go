package relay

import (
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
	raw     syscall.RawConn // nil: there is none
	step    func(fd uintptr) bool

	mu   sync.Mutex
	left []byte // of a Write
	err  error
}

// NewGate returns a Gate for conn. Allowed must not close conn.
func NewGate(conn net.Conn, allowed func() error) *Gate {
	g := &Gate{conn: conn, allowed: allowed}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn: // others may do more than a system call
		if gatesCalls {
			g.raw, _ = conn.(syscall.Conn).SyscallConn()
			g.step = g.send // made once, and not by each Write
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
	err := g.raw.Write(g.step)
	n := len(p) - len(g.left)
	g.left = nil
	if err == nil {
		err = g.err
	}
	return n, err
}
