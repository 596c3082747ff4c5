package upstream

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitAhead sets the size of the connection's receive buffer. What fails leaves it as the
// system has it.
func (c *conn) limitAhead(rate int64) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		if n := aheadOf(rate, float64(info.Rtt)/1e6); n > 0 {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n)
		}
	})
}
