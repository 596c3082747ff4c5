package proxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSplice: the system copies from connection to connection, and ackedBy tells how
// far a client has come meanwhile.
const canSplice = true

// ackedBy returns how many bytes the other side of conn has acknowledged, 0 if that
// cannot be told, and whether more are waiting that it has no room for. Its system
// acknowledges no more than fits a window while nobody reads.
func ackedBy(conn net.Conn) (acked uint64, waiting bool) {
	if info := tcpInfo(conn); info != nil {
		return info.Bytes_acked, info.Notsent_bytes > 0
	}
	return 0, false
}

// hasUnread reports whether bytes have come over conn that nobody has read.
func hasUnread(conn net.Conn) bool {
	n := 0
	control(conn, func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.SIOCINQ) })
	return n > 0
}

// isEstablished reports whether neither side of conn has closed it or its sending
// side.
func isEstablished(conn net.Conn) bool {
	const established = 1 // TCP_ESTABLISHED of the kernel
	info := tcpInfo(conn)
	return info != nil && info.State == established
}

// tcpInfo returns what the kernel knows of conn; nil if that cannot be told.
func tcpInfo(conn net.Conn) (info *unix.TCPInfo) {
	control(conn, func(fd int) {
		if got, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	return info
}

// control calls f with the descriptor of conn, if it has one.
func control(conn net.Conn, f func(fd int)) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
