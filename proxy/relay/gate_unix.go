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
	if g.silent {
		if g.silent = false; !g.isSilent(fd) {
			g.err = ErrSpoke
			return true
		}
	}
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

// sendAndWait is send, for a wait for something to read: that has come, or the wait makes no sense, if it
// reports true.
func (g *Gate) sendAndWait(fd uintptr) bool {
	if g.waits {
		return true
	}
	g.waits = true
	return !g.send(fd) || g.err != nil
}

// isSilent reports whether there is nothing to read yet, not even an end.
func (g *Gate) isSilent(fd uintptr) bool {
	for {
		if _, err := syscall.Read(int(fd), g.spoken[:]); err != syscall.EINTR {
			return err == syscall.EAGAIN
		}
	}
}
