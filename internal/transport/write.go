package transport

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// A message to a peer is written by the session's goroutine, or by its sender.
//
// The session's goroutine takes everything that is queued. Before that it lets other
// goroutines run, which may have more for the same write: under load this saves more system
// calls than anything else. For a message that is alone it costs time, because another
// thread has to wake up. So its sender writes what the kernel takes at once, and leaves the
// rest to the goroutine.

// send queues m, and writes it now or leaves it to the session's goroutine.
func (l *link) send(pool string, m *kmutex.Message, now bool) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("%w: node %d", ErrUnknownPeer, l.node)
	}
	err := l.out.put(pool, m)
	switch s := l.active; {
	case err != nil:
	case now && s != nil && s.free():
		s.writeNow()
	default:
		l.wakeWriter()
	}
	l.mu.Unlock()
	if errors.Is(err, errOverflow) {
		l.t.refusals.add(CauseOverflow, err, l.attrs()...)
	}
	return err
}

// free reports whether a sender may write, because the session's goroutine has nothing to
// do. It is called under link.mu.
func (s *session) free() bool { return s.idle && s.socket != nil }

// writeNow writes in place of the session's goroutine, and does not wait. It is called under
// link.mu, and lets it go while it writes.
func (s *session) writeNow() {
	l := s.link
	s.idle = false
	messages := s.fill()
	l.mu.Unlock()
	err := s.writeBatch(s.conn, messages)
	if err != nil {
		s.fail(err)
	}
	l.mu.Lock()
	s.idle = true
	if l.active == s && (s.more() || s.socket.keeps()) {
		l.wakeWriter()
	}
}

// write is the session's goroutine that writes.
func (s *session) write(out io.Writer) error {
	l := s.link
	for {
		if s.socket != nil {
			if err := s.socket.flush(); err != nil {
				return err
			}
		}
		l.mu.Lock()
		messages := s.fill()
		idle := len(s.batch) == 0
		s.idle = idle // from now on a sender may use the batch
		l.mu.Unlock()
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

func (s *session) writeBatch(out io.Writer, messages int) error {
	_, err := out.Write(s.batch)
	s.link.t.config.Observer.Batch(messages)
	if cap(s.batch) > 4*maxBatch {
		s.batch = nil
	}
	return err
}

// fill makes the next batch, and returns how many messages are in it. It is called under
// link.mu.
func (s *session) fill() (messages int) {
	s.batch = s.batch[:0]
	if !s.more() {
		return 0
	}
	l, batch := s.link, s.batch
	if s.paddingDue {
		s.paddingDue = false
		batch, messages = l.out.take(batch, maxBatch) // they may be short enough
		batch = s.out.padding(batch)
	}
	if received := l.received.Load(); received != s.acked.Load() {
		batch = appendControl(batch, frameAck, received)
		s.acked.Store(received)
	}
	s.ackDue = false
	if s.pong != 0 {
		batch = appendControl(batch, framePong, s.pong)
		s.pong = 0
	}
	if s.pings() {
		s.pingDue = false
		s.pingID++
		s.pinged = time.Now()
		batch = appendControl(batch, framePing, s.pingID)
	}
	batch = s.in.take(batch)
	batch, more := l.out.take(batch, maxBatch)
	messages += more
	s.batch = s.out.take(batch)
	return messages
}

// more reports whether there is something to write. It is called under link.mu.
func (s *session) more() bool {
	return s.ackDue || s.pong != 0 || s.pings() || s.link.out.unwritten() || s.in.due() || s.out.due()
}

// pings reports whether a ping is to be written: one at a time.
func (s *session) pings() bool { return s.pingDue && s.pinged.IsZero() }
