package upstream

import (
	"net"

	"golang.org/x/sys/unix"
)

// isDelivered reports whether the other side's system has acknowledged all that was
// written, or is gone.
func isDelivered(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return true // the system hands it over at once
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	const closed = 7 // TCP_CLOSE of the kernel
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return failed != nil || err != nil || info.State == closed || info.Unacked == 0 && info.Notsent_bytes == 0
}
