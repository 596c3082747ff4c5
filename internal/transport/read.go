package transport

import (
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// run reads and writes until the connection is over, for whatever reason.
func (s *session) run() {
	var out io.Writer = s.conn
	if slow := s.p.t.config.slow; slow != nil {
		out = slow(s)
	} else {
		s.socket = s.raw.unblock()
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.fail(s.write(out)) })
	s.fail(s.read())
	s.p.end(s, s.err)
	wg.Wait()
}

const (
	// A session's buffer for what it reads begins with firstBuffer bytes, and grows while one
	// read fills it.
	firstBuffer = 4 << 10
	readBuffer  = 64 << 10
)

// read takes in what arrives until something is bad or the connection is over.
func (s *session) read() error {
	buf := make([]byte, firstBuffer)
	for have := 0; ; {
		n, err := s.conn.Read(buf[have:])
		if have += n; n > 0 {
			used, err := s.receive(buf[:have])
			if err != nil {
				return err
			}
			full := have == len(buf)
			copy(buf, buf[used:have])
			have -= used
			if full && len(buf) < readBuffer {
				buf = append(make([]byte, 0, readBuffer), buf[:have]...)[:readBuffer]
			}
		}
		if err != nil {
			return err
		}
	}
}

// receive takes in bytes and hands on what they bring. It returns how many it has used.
func (s *session) receive(b []byte) (used int, err error) {
	p := s.p
	p.deliver.Lock()
	defer p.deliver.Unlock()
	p.mu.Lock()
	if p.session != s || !p.open(s, s.boot) {
		p.mu.Unlock()
		return 0, errReplaced
	}
	used, events, err := s.wire.Receive(p.t.now(), b)
	l, messages := p.link, false
	for i := range events {
		switch events[i].Kind {
		case wire.Linked, wire.Proved:
			p.review(s, nil)
			l.release()
		case wire.Acked:
			l.release()
		case wire.Message:
			messages = true
		case wire.Asked:
			s.admit(l, events[i].Question)
		case wire.Opened:
			c := &streamConn{s: s, stream: events[i].Stream, changed: make(chan struct{})}
			c.stream.User = c
		default: // for others
		}
	}
	if l != nil && l.up {
		l.rtt.Store(int64(s.wire.RTT()))
	}
	if s.wire.Due() {
		s.wakeWriter()
	}
	p.mu.Unlock()
	for i := range events {
		if bad := s.handle(l, &events[i]); err == nil {
			err = bad
		}
	}
	if messages {
		p.mu.Lock()
		s.wire.Delivered()
		if s.wire.Due() {
			s.wakeWriter()
		}
		p.mu.Unlock()
	}
	if err != nil {
		s.refused(err)
	}
	return used, err
}

// handle hands on one event.
func (s *session) handle(l *link, e *wire.Event) error {
	switch e.Kind {
	case wire.Message:
		return s.deliver(l, e.Data)
	case wire.Answered:
		ended(e.Call, answer{status: e.Status, data: e.Data})
	case wire.Asked:
		if q, ok := e.Question.User.(*question); ok {
			s.asked(q)
		}
	case wire.Canceled:
		if q, ok := e.Question.User.(*question); ok {
			q.cancel()
		}
	case wire.Datagram:
		if take := s.p.t.config.Datagram; take != nil {
			take(e.Channel, s.from, e.Data)
		}
	case wire.Opened:
		s.opened(e.Stream)
	case wire.Data, wire.Finished, wire.Writable, wire.Closed:
		if stream, ok := e.Stream.User.(*streamConn); ok {
			stream.event(e)
		}
	default: // taken in before
	}
	return nil
}

// deliver hands on a message.
func (s *session) deliver(l *link, data []byte) error {
	if l.dropped.Load() {
		return nil
	}
	var m kmutex.Message
	pool, err := decodeMessage(data, s.pools, &m)
	if err != nil {
		return err
	}
	t := s.p.t
	if err := t.config.Handler.Deliver(l.node, pool, m); err != nil {
		t.refusals.add(CauseHandler, err, slog.Uint64("peer_node", uint64(l.node)), slog.String("peer", s.p.name),
			slog.String("pool", pool), slog.String("kind", m.Kind.String()))
	}
	return nil
}

// refused counts what a connection ends for, if the other end is to blame.
func (s *session) refused(err error) {
	var cause Cause
	switch {
	case errors.Is(err, wire.ErrOversized):
		cause = CauseOversized
	case errors.Is(err, wire.ErrFrame):
		cause = CauseFrame
	case errors.Is(err, wire.ErrProtocol):
		cause = CauseProtocol
	default:
		return
	}
	s.p.t.refusals.add(cause, err, slog.String("peer", s.p.name), slog.String("remote", s.raw.RemoteAddr().String()))
}

// opened hands on a stream that the other end has opened.
func (s *session) opened(stream *wire.Stream) {
	c := stream.User.(*streamConn)
	if f := s.p.t.config.Accept; f == nil || !f(s.from, stream.Name, c) {
		_ = c.Close() // never fails
	}
}
