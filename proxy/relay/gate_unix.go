//go:build unix

package relay

import (
	"net"
	"os"
	"syscall"
)

const gatesCalls = true

// send writes what is left, as far as the socket has room, and reports whether that is all.
func (g *Gate) send(fd uintptr) bool {
	for len(g.left) > 0 {
		if g.err = g.allowed(); g.err != nil {
			return true
		}
		switch n, err := syscall.Write(int(fd), g.left); err {
		case nil:
			g.left = g.left[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			local := g.conn.LocalAddr()
			g.err = &net.OpError{Op: "write", Net: local.Network(), Source: local, Addr: g.conn.RemoteAddr(), Err: os.NewSyscallError("write", err)}
			return true
		}
	}
	return true
}
