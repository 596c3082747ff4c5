package gateway

import "sync"

// signal wakes those who wait for a condition that a lock guards.
type signal struct{ ch chan struct{} }

// wait returns a channel that is closed when the condition next holds.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) signal(holds bool) {
	if holds && s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// lockedSignal is a signal with a lock of its own.
type lockedSignal struct {
	mu sync.Mutex
	signal
}

func (s *lockedSignal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal.wait()
}

func (s *lockedSignal) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal.signal(true)
}
