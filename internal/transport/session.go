package transport

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// session is one connection of a link, from hello to end.
type session struct {
	link *link
	raw  *securedConn // to break it
	conn net.Conn     // to use it: raw, or TLS over it
	done chan struct{}
	// socket is what conn writes to, without waiting; nil: only the session's goroutine
	// writes.
	socket *socket
	// wake tells the goroutine that writes, when it is idle, that there is something to do.
	wake chan struct{}

	failOnce sync.Once
	stop     chan struct{} // closed by fail
	err      error         // why; read after stop

	// heard: something has arrived since the last beat.
	heard atomic.Bool
	// acked is the number last acknowledged to the peer.
	acked atomic.Uint64

	in inPayloads

	// batch is what is being written. It belongs to whoever writes.
	batch []byte

	// The rest is under link.mu.
	idle         bool
	out          outPayloads
	beats        int
	silent       int // beats since anything has arrived
	unackedBeats int // beats since then on which an acknowledgement was due
	ackDue       bool
	pong         uint64 // id of the ping to answer, 0: none
	pingDue      bool
	paddingDue   bool
	pingID       uint64
	pinged       time.Time // when pingID was written; zero: answered
}

func newSession(l *link, raw *securedConn, conn net.Conn) *session {
	return &session{
		link: l, raw: raw, conn: conn, in: newInPayloads(),
		done: make(chan struct{}), stop: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// fail ends the session, for the reason of the first call. It does not wait.
func (s *session) fail(err error) {
	s.failOnce.Do(func() {
		s.err = err
		close(s.stop)
		_ = s.raw.Close() // not conn: TLS would send its close notify first, and could block
	})
}

func (s *session) failed() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
