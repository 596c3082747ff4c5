package cluster

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedByPeer tells of each connection whether the other end has closed or reset it, whatever has
// been read of it so far. One system call asks for all: a judge of many requests asks at each.
func closedByPeer(conns ...net.Conn) []bool {
	fds, closed := make([]unix.PollFd, len(conns)), make([]bool, len(conns))
	for i, conn := range conns {
		fds[i] = unix.PollFd{Fd: -1, Events: unix.POLLRDHUP} // an error needs not be asked for
		if c, ok := conn.(syscall.Conn); ok {
			raw, err := c.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { fds[i].Fd = int32(fd) })
			}
			closed[i] = err != nil
		}
	}
	for {
		if _, err := unix.Poll(fds, 0); err != unix.EINTR {
			break
		}
	}
	for i := range fds {
		closed[i] = closed[i] || fds[i].Revents != 0
	}
	return closed
}
