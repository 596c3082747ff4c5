package relay

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Stream is one direction. All its fields are needed, and must not change while Run runs.
type Stream struct {
	// From and To are its ends. Closing one from elsewhere ends Run.
	From io.Reader
	To   net.Conn
	// Check is asked right before each write, where it must not close To; its error ends Run.
	Check func() error
	// Take is asked, before each read, how many of want bytes may be moved, and Unused is
	// told how many of them were not, 0 included; an error ends Run.
	Take   func(want int) (int, error)
	Unused func(n int)
	// Moved is told how many bytes each write has moved, 0 included. It must be fast.
	Moved func(n int)

	gate *Gate // of To; nil: nothing was written yet
}

// WriteError says that it was the receiving end that failed, or Check. Any other error
// of Run is the sender's.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "relay: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Run copies until From ends, and then returns nil. It closes nothing.
func (s *Stream) Run() error {
	err := s.splice()
	if errors.Is(err, errors.ErrUnsupported) {
		return s.copy()
	}
	return err
}

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// copy is Run through a buffer.
func (s *Stream) copy() error {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for {
		may, err := s.Take(len(buf))
		if err != nil {
			return err
		}
		n, err := s.From.Read(buf[:may])
		s.Unused(may - n)
		if err := s.write(buf[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Write sends what was read before Run.
func (s *Stream) Write(p []byte) error {
	for len(p) > 0 {
		n, err := s.Take(len(p))
		if err == nil {
			err = s.write(p[:n])
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (s *Stream) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if s.gate == nil {
		s.gate = NewGate(s.To, s.Check)
	}
	n, err := s.gate.Write(p)
	s.Moved(n)
	if err != nil {
		return &WriteError{err}
	}
	return nil
}

func (s *Stream) allowed() error {
	if err := s.Check(); err != nil {
		return &WriteError{err}
	}
	return nil
}
