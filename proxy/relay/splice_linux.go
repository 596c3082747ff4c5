package relay

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize is how much the kernel may hold between the two halves of a splice. A smaller
// pipe means more system calls.
const pipeSize = 256 << 10

// small is how much goes through a buffer before a pipe is made. Short connections, and
// those that say little, such as shells, need none: it would cost them eight system calls
// and four file descriptors.
const small = 64 << 10

// carrier is what the bytes are in between.
type carrier interface {
	// size is how much it can hold.
	size() int
	// fill moves what a socket has, at most so many bytes, into the empty carrier, and
	// waits until it has something. It returns 0 when the socket has ended.
	fill(from syscall.RawConn, most int) (n int, err error)
	// drain moves at most size bytes into a socket, if that is allowed when the socket
	// has room. Nothing stands between the question and the system call.
	drain(to syscall.RawConn, size int, allowed func() error) (n int, err error)
}

// splice is Run by system calls of its own. It returns errors.ErrUnsupported if the ends
// do not allow that, or not any more. Then all that it has read is written.
func (s *Stream) splice() error {
	from, to := socketOf(s.From), socketOf(s.To)
	if from == nil || to == nil {
		return errors.ErrUnsupported
	}
	var through buffer
	for moved := 0; moved < small; {
		n, err := s.carry(&through, from, to)
		if n == 0 || err != nil {
			return err
		}
		moved += n
	}
	p, err := newPipe()
	if err != nil {
		return errors.ErrUnsupported // a buffer needs no file descriptors
	}
	defer p.close()
	for {
		if n, err := s.carry(p, from, to); n == 0 || err != nil {
			return err
		}
	}
}

// carry moves what there is, and returns 0 when the sender has ended.
func (s *Stream) carry(c carrier, from, to syscall.RawConn) (n int, err error) {
	may, err := s.Take(c.size())
	if err != nil {
		return 0, err
	}
	n, err = c.fill(from, may)
	s.Unused(may - n)
	if errors.Is(err, unix.EINVAL) {
		return 0, errors.ErrUnsupported
	}
	for left := n; left > 0 && err == nil; {
		var sent int
		sent, err = c.drain(to, left, s.allowed)
		left -= sent
		s.Moved(sent)
	}
	return n, err
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

// buffer carries bytes through this process. While it waits for some it has no memory.
type buffer struct {
	held *[bufferSize]byte
	full []byte // what is in it
}

func (*buffer) size() int { return bufferSize }

// fill implements carrier.
func (b *buffer) fill(from syscall.RawConn, most int) (n int, err error) {
	failed := from.Read(func(fd uintptr) bool {
		b.held = buffers.Get().(*[bufferSize]byte)
		n, err = uninterrupted(func() (int, error) { return unix.Read(int(fd), b.held[:most]) })
		if b.full = b.held[:n]; n == 0 {
			b.empty()
		}
		return err != unix.EAGAIN
	})
	if failed != nil {
		return 0, failed
	}
	return n, os.NewSyscallError("read", err)
}

// drain implements carrier.
func (b *buffer) drain(to syscall.RawConn, size int, allowed func() error) (n int, err error) {
	n, err = write(to, "write", allowed, func(fd int) (int, error) { return unix.Write(fd, b.full[:size]) })
	if b.full = b.full[n:]; len(b.full) == 0 || err != nil {
		b.empty()
	}
	return n, err
}

func (b *buffer) empty() {
	buffers.Put(b.held)
	b.held, b.full = nil, nil
}

// pipe carries bytes inside the kernel.
type pipe struct{ out, in int }

// pipes is how many there are.
var pipes atomic.Int64

// maxPipes is how many there may be: each has two of the process's file descriptors, of
// which they get a sixteenth.
var maxPipes = sync.OnceValue(func() int64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(limit.Cur/32, 1<<20))
})

func newPipe() (*pipe, error) {
	if pipes.Add(1) > maxPipes() {
		pipes.Add(-1)
		return nil, unix.EMFILE
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		pipes.Add(-1)
		return nil, os.NewSyscallError("pipe2", err)
	}
	// More than the default is a favour that the kernel may refuse.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{out: fds[0], in: fds[1]}, nil
}

func (p *pipe) close() {
	_ = unix.Close(p.out)
	_ = unix.Close(p.in)
	pipes.Add(-1)
}

func (*pipe) size() int { return pipeSize }

// fill implements carrier.
func (p *pipe) fill(from syscall.RawConn, most int) (n int, err error) {
	failed := from.Read(func(fd uintptr) bool {
		n, err = spliceOnce(int(fd), p.in, most)
		return err != unix.EAGAIN
	})
	if failed != nil {
		return 0, failed
	}
	return n, os.NewSyscallError("splice", err)
}

// drain implements carrier.
func (p *pipe) drain(to syscall.RawConn, size int, allowed func() error) (n int, err error) {
	return write(to, "splice", allowed, func(fd int) (int, error) { return spliceOnce(p.out, fd, size) })
}

// write makes the system call once the socket has room, if that is allowed then.
func write(to syscall.RawConn, name string, allowed func() error, call func(fd int) (int, error)) (n int, err error) {
	var refused error
	failed := to.Write(func(fd uintptr) bool {
		if refused = allowed(); refused != nil {
			return true
		}
		n, err = uninterrupted(func() (int, error) { return call(int(fd)) })
		return err != unix.EAGAIN
	})
	switch {
	case refused != nil:
		return 0, refused
	case failed != nil:
		return 0, &WriteError{failed}
	case err != nil:
		return 0, &WriteError{os.NewSyscallError(name, err)}
	}
	return n, nil
}

// spliceOnce moves at most size bytes.
func spliceOnce(from, to, size int) (int, error) {
	return uninterrupted(func() (int, error) {
		n, err := unix.Splice(from, nil, to, nil, size, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		return int(n), err
	})
}

// uninterrupted makes a system call until no signal interrupts it.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}
