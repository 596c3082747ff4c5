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

// isEstablished reports whether neither side of conn has closed it or its sending
// side.
func isEstablished(conn net.Conn) bool {
	const established = 1 // TCP_ESTABLISHED of the kernel
	info := tcpInfo(conn)
	return info != nil && info.State == established
}

// tcpInfo returns what the kernel knows of conn; nil if that cannot be told.
func tcpInfo(conn net.Conn) (info *unix.TCPInfo) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err != nil {
		return nil
	}
	return info
}
