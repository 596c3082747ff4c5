package relay

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize is how much the kernel may hold between the two halves of a splice. A smaller
// pipe means more system calls.
const pipeSize = 256 << 10

// splice is Run inside the kernel. It returns errors.ErrUnsupported, and has moved
// nothing, if the ends do not allow that.
func (s *Stream) splice() error {
	from, to := socketOf(s.From), socketOf(s.To)
	if from == nil || to == nil {
		return errors.ErrUnsupported
	}
	p, err := newPipe()
	if err != nil {
		return errors.ErrUnsupported // a buffer needs no file descriptors
	}
	defer p.close()
	for moved := false; ; moved = true {
		may, err := s.take(pipeSize)
		if err != nil {
			return err
		}
		n, err := p.fill(from, may)
		s.unused(may - n)
		switch {
		case errors.Is(err, unix.EINVAL) && !moved:
			return errors.ErrUnsupported
		case err != nil || n == 0:
			return err
		}
		for n > 0 {
			sent, err := p.drain(to, n, s.allowed)
			if err != nil {
				return err
			}
			n -= sent
			s.moved(sent)
		}
	}
}

// socketOf returns the socket below a connection; nil if that is none that the kernel
// can splice.
func socketOf(conn any) syscall.RawConn {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// pipe is what the bytes are in between.
type pipe struct{ out, in int }

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	// More than the default is a favour that the kernel may refuse.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{out: fds[0], in: fds[1]}, nil
}

func (p *pipe) close() {
	_ = unix.Close(p.out)
	_ = unix.Close(p.in)
}

// fill moves what a socket has, most bytes at most, into the empty pipe, and waits until it
// has something. It returns 0 when the socket has ended.
func (p *pipe) fill(from syscall.RawConn, most int) (n int, err error) {
	failed := from.Read(func(fd uintptr) bool {
		n, err = spliceOnce(int(fd), p.in, min(most, pipeSize))
		return err != unix.EAGAIN //nolint:errorlint // a system call's own
	})
	if failed != nil {
		return 0, failed
	}
	return n, os.NewSyscallError("splice", err)
}

// drain moves at most size bytes of the pipe into a socket, if that is allowed when the
// socket has room. Nothing stands between the question and the system call.
func (p *pipe) drain(to syscall.RawConn, size int, allowed func() error) (n int, err error) {
	var refused error
	failed := to.Write(func(fd uintptr) bool {
		if refused = allowed(); refused != nil {
			return true
		}
		n, err = spliceOnce(p.out, int(fd), size)
		return err != unix.EAGAIN //nolint:errorlint // a system call's own
	})
	switch {
	case refused != nil:
		return 0, refused
	case failed != nil:
		return 0, &WriteError{failed}
	case err != nil:
		return 0, &WriteError{os.NewSyscallError("splice", err)}
	}
	return n, nil
}

// spliceOnce calls the kernel until it is not interrupted.
func spliceOnce(from, to, size int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, size, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err == unix.EINTR {
			continue
		}
		return int(max(n, 0)), err
	}
}
