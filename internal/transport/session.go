package transport

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"

	"github.com/kgate/kgate/internal/transport/wire"
)

// session is one connection to a process, from the hellos to its end. It has a goroutine that
// reads and a goroutine that writes.
type session struct {
	p      *process
	number uint64
	from   Caller
	boot   string       // of the other end; an accepted session knows it from the start, and addr
	addr   string       // where the other end's peer port is, as it says
	raw    *securedConn // to break it
	conn   net.Conn     // to use it: raw, or TLS over it
	// socket is what conn writes to, without waiting; nil: only the session's goroutine
	// writes.
	socket *socket
	// wake tells the goroutine that writes, when it is idle, that there is something to do.
	wake chan struct{}

	failOnce sync.Once
	stop     chan struct{} // closed by fail
	err      error         // why; read after stop

	pools names  // the reader's
	batch []byte // what is being written; it belongs to whoever writes

	// The rest is under the process's lock.
	wire  *wire.Conn
	open  bool // both ends have it
	idle  bool // the goroutine that writes has nothing to do
	ticks int
	// inline: the goroutine that reads delivers messages itself, since so many ticks, and has not
	// used the rest yet.
	inline   bool
	since    int
	rest     []byte
	payloads map[*wire.Call]bool
}

// newSession is called under the process's lock.
func newSession(p *process, number uint64, raw *securedConn, conn net.Conn, dialled bool) *session {
	t := p.t
	s := &session{
		p: p, number: number, raw: raw, conn: conn, from: Caller{Name: p.name},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), pools: make(names),
		wire: wire.NewConn(t.now(), dialled, t.config.PingInterval), payloads: make(map[*wire.Call]bool),
	}
	s.from.s = s
	s.wire.Stranger = p.kept == 0
	return s
}

// fail ends the session, for the reason of the first call. It does not wait.
func (s *session) fail(err error) {
	s.failOnce.Do(func() {
		s.err = err
		close(s.stop)
		_ = s.raw.Close() // not conn: TLS would send its close notify first, and could block
	})
}

// What is to be sent is written by the session's goroutine, or by its sender.
//
// The session's goroutine takes everything that is queued. Before that it lets other goroutines
// run, which may have more for the same write: under load this saves more system calls than
// anything else. For a message that is alone it costs time, because another thread has to wake
// up. So its sender writes what the kernel takes at once, and leaves the rest to the goroutine.

// wakeWriter is called under the process's lock.
func (s *session) wakeWriter() {
	if s.idle {
		s.idle = false
		s.wake <- struct{}{} // there is room: it waits for this one
	}
}

// flushSoon has what is queued written: now, or by the session's goroutine. It is called under
// the process's lock, and lets it go while it writes. The session may be nil.
func (s *session) flushSoon(now bool) {
	switch {
	case s == nil:
	case now && s.idle && s.socket != nil:
		s.writeNow()
	default:
		s.wakeWriter()
	}
}

// writeNow writes in place of the session's goroutine, which is idle, and does not wait.
func (s *session) writeNow() {
	if !s.wire.Due() {
		return
	}
	s.idle = false
	messages := s.fill()
	s.p.mu.Unlock()
	err := s.writeBatch(s.conn, messages)
	if err != nil {
		s.fail(err)
	}
	s.p.mu.Lock()
	s.idle = true
	if s.p.session == s && (s.wire.Due() || s.socket.keeps()) {
		s.wakeWriter()
	}
}

// write is the session's goroutine that writes.
func (s *session) write(out io.Writer) error {
	for {
		if s.socket != nil {
			if err := s.socket.flush(); err != nil {
				return err
			}
		}
		s.p.mu.Lock()
		messages := s.fill()
		idle := len(s.batch) == 0
		s.idle = idle // from now on a sender may use the batch
		s.p.mu.Unlock()
		if !idle {
			if err := s.writeBatch(out, messages); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.wake:
			runtime.Gosched() // if nobody else wants to run, this costs nothing
		case <-s.stop:
			return s.err
		}
	}
}

// fill makes the next batch, and returns how many messages are in it. It is called under the
// process's lock.
func (s *session) fill() (messages int) {
	s.batch = s.batch[:0]
	if s.p.session == s && s.wire.Due() {
		s.batch, messages = s.wire.Fill(s.p.t.now(), s.batch, wire.MaxBatch)
	}
	return messages
}

func (s *session) writeBatch(out io.Writer, messages int) error {
	_, err := out.Write(s.batch)
	s.p.t.config.Observer.Batch(messages)
	if cap(s.batch) > 4*wire.MaxBatch {
		s.batch = nil
	}
	return err
}

// dropPayloads gives up the payloads of a link that is dropped. It is called under the process's
// lock.
func (s *session) dropPayloads() {
	for call := range s.payloads {
		s.wire.Cancel(call)
		ended(call, answer{err: fmt.Errorf("%w: %s", ErrLinkDown, s.p.name)})
	}
	clear(s.payloads)
}

// answer is what became of a call.
type answer struct {
	status wire.Status
	data   []byte
	err    error // the connection has ended
}

// ended tells the caller what became of a call, unless that has been told, or the caller has gone.
func ended(call *wire.Call, a answer) {
	select {
	case call.User.(chan answer) <- a:
	default:
	}
}
