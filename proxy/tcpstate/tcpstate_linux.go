package tcpstate

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel's states.
const (
	established = 1
	closed      = 7
)

// TellsAcked reports whether Acked tells anything of conn: it must be a TCP connection.
func TellsAcked(conn net.Conn) bool { return infoOf(conn) != nil }

// Acked returns how many bytes the other side of conn has acknowledged, 0 if that
// cannot be told, and whether more are waiting that it has no room for. Its system
// acknowledges no more than fits a window while nobody reads.
func Acked(conn net.Conn) (acked uint64, waiting bool) {
	if info := infoOf(conn); info != nil {
		return info.Bytes_acked, info.Notsent_bytes > 0
	}
	return 0, false
}

// IsDelivered reports whether the other side's system has acknowledged all that was
// written, or is gone; true if that cannot be told.
func IsDelivered(conn net.Conn) bool {
	info := infoOf(conn)
	return info == nil || info.State == closed || info.Unacked == 0 && info.Notsent_bytes == 0
}

// IsEstablished reports whether neither side of conn, a TCP connection, has closed it or
// its sending side; elsewhere it is always true.
func IsEstablished(conn net.Conn) bool {
	info := infoOf(conn)
	return info != nil && info.State == established
}

// IsReset reports whether the other side of conn has reset the connection, and a system call
// here has been told so: reads then return an end as after a close.
func IsReset(conn net.Conn) bool {
	pending := 0
	if info := infoOf(conn); info == nil || info.State != closed {
		return false
	}
	control(conn, func(fd int) { pending, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) })
	return pending == 0
}

// HasEnded reports whether the other side of conn has closed it, or its sending side, also behind
// bytes that nobody has read; false if that cannot be told.
func HasEnded(conn net.Conn) (ended bool) {
	control(conn, func(fd int) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} // an error needs not be asked for
		_, _ = unix.Poll(fds[:], 0)
		ended = fds[0].Revents != 0
	})
	return ended
}

// HasUnread reports whether bytes have come over conn that nobody has read; false if that
// cannot be told.
func HasUnread(conn net.Conn) bool {
	n := 0
	control(conn, func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.SIOCINQ) })
	return n > 0
}

// AwaitReset waits until the other side of conn, which has closed its sending side, resets
// the connection: that is the error. It returns nil when reads from conn are ended by a
// deadline, or when conn is closed here, or at once if a reset cannot be noticed.
func AwaitReset(conn net.Conn) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	failed := raw.Read(func(fd uintptr) bool {
		fds := [1]unix.PollFd{{Fd: int32(fd)}} // an error needs not be asked for
		_, _ = unix.Poll(fds[:], 0)
		return fds[0].Revents&unix.POLLERR != 0
	})
	if failed != nil {
		return nil // it was ended
	}
	return syscall.ECONNRESET
}

// LimitReceive sets the size of conn's receive buffer to what size returns for the time of
// a round trip, in seconds; 0 leaves it as it is. What fails does so, too.
func LimitReceive(conn net.Conn, size func(roundTrip float64) int) {
	if info := infoOf(conn); info != nil {
		if n := size(float64(info.Rtt) / 1e6); n > 0 {
			control(conn, func(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n) })
		}
	}
}

// ConnectNoMore has the system ignore whoever begins to connect to a TCP listener. Clients try
// again after a second, and are refused if the socket is closed by then. It holds for the socket: whoever
// has it open, too, gets no more connections either.
func ConnectNoMore(l net.Listener) {
	const flags, syn, ack = 13, 0x02, 0x10 // of the TCP header
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	control(l, func(fd int) {
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
}

// HasUnaccepted reports whether connections to a TCP listener wait to be accepted.
func HasUnaccepted(l net.Listener) bool {
	info := infoOf(l)
	return info != nil && info.Unacked > 0
}

// infoOf returns what the kernel knows of conn; nil if that cannot be told.
func infoOf(conn any) (info *unix.TCPInfo) {
	control(conn, func(fd int) {
		if got, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	return info
}

// control calls f with the descriptor of a connection or a listener, if it has one.
func control(conn any, f func(fd int)) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
