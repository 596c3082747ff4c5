package transport

import (
	"net"
	"sync"
	"syscall"
)

// socket writes to a connection without waiting: it keeps what the kernel does not take at
// once, for flush to write. Its methods are safe for concurrent use; of flush one call at a
// time.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn

	mu       sync.Mutex
	kept     []byte
	flushing bool // what was kept is being written

	// try writes what it can of data. It is a field because a closure would be allocated at
	// each write.
	try  func(fd uintptr) bool
	data []byte
	n    int
	err  error
}

// newSocket returns nil for a connection that can only write and wait.
func newSocket(conn net.Conn) *socket {
	c, ok := conn.(syscall.Conn)
	if !ok || !writesOnce {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{conn: conn, raw: raw}
	s.try = func(fd uintptr) bool {
		s.n, s.err = writeOnce(fd, s.data)
		return true
	}
	return s
}

// Write implements io.Writer.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := b
	if len(s.kept) == 0 && !s.flushing {
		s.data = b
		err := s.raw.Write(s.try)
		s.data = nil
		if err == nil {
			err = s.err
		}
		if err != nil {
			return 0, err
		}
		rest = b[s.n:]
	}
	s.kept = append(s.kept, rest...)
	return len(b), nil
}

// keeps reports whether flush has something to write.
func (s *socket) keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept) > 0
}

// flush writes what was kept, and waits until the kernel has taken it.
func (s *socket) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 {
		data := s.kept
		s.kept, s.flushing = nil, true
		s.mu.Unlock()
		_, err := s.conn.Write(data)
		s.mu.Lock()
		if s.flushing = false; err != nil {
			return err
		}
	}
	return nil
}
