package cluster

import (
	"encoding/binary"
	"net"
	"syscall"
)

// closedByPeer reports whether the other end has closed or reset the
// connection, whatever has been read of it so far.
func closedByPeer(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	const established = 1 // TCP_ESTABLISHED
	state := byte(0)
	err = raw.Control(func(fd uintptr) {
		// The state is the first byte of struct tcp_info.
		v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		if err == nil {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], uint32(v))
			state = b[0]
		}
	})
	return err != nil || state != established
}
