package proxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ackedBy returns how many bytes the other side of conn has acknowledged; 0 if that
// cannot be told. Its system acknowledges no more than fits a window while nobody
// reads.
func ackedBy(conn net.Conn) (n uint64) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
