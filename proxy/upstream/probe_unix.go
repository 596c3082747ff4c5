//go:build unix

package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe looks at a connection without reading from it. It is used by one goroutine
// at a time.
type probe struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	fds  [1]unix.PollFd

	count   func(fd uintptr)
	unacked int // bytes
}

// of prepares to look at conn.
func (p *probe) of(conn net.Conn) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.look = func(fd uintptr) {
		p.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		for {
			if _, err := unix.Poll(p.fds[:], 0); err != unix.EINTR {
				return
			}
		}
	}
}

// readable reports whether a Read would return at once, with bytes or an error.
func (p *probe) readable() bool {
	if p.raw == nil {
		return false
	}
	p.fds[0].Revents = 0
	return p.raw.Control(p.look) != nil || p.fds[0].Revents != 0
}
