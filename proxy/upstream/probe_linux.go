package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe looks at a connection. It costs less than package tcpstate, which knows of connections that
// have ended. It is used by one goroutine at a time.
type probe struct {
	raw     syscall.RawConn // nil: the connection is no socket
	count   func(fd uintptr)
	unacked int // bytes
}

// of prepares to look at conn.
func (p *probe) of(conn net.Conn) {
	if sc, ok := conn.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn()
		p.count = p.queued
	}
}

// waits reports whether some of what was written may not have reached the server's system.
func (p *probe) waits() bool {
	if p.raw == nil {
		return false // nor can tcpstate tell
	}
	p.unacked = 1
	return p.raw.Control(p.count) != nil || p.unacked > 0
}

// queued is what probe.count does.
func (p *probe) queued(fd uintptr) { p.unacked, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }
