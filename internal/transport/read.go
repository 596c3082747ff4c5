package transport

import (
	"context"
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
		s.asked(l, e.Question)
	case wire.Canceled:
		if cancel, ok := e.Question.User.(context.CancelFunc); ok {
			cancel()
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

// asked answers a question of the other end.
func (s *session) asked(l *link, q *wire.Question) {
	ctx, cancel := context.WithCancel(s.p.t.ctx)
	q.User = cancel
	if name, ours := cut(q.Name, payloadName); ours {
		s.p.payloads.add(func() {
			defer cancel()
			err := ctx.Err() // nobody waits for the answer any more
			if err == nil {
				err = s.takePayload(l, name, q)
			}
			s.answer(q, nil, err)
		}, s.p.t.wg.Go)
		return
	}
	name, ours := cut(q.Name, callName)
	f := s.p.t.config.Answer
	if !ours || f == nil {
		cancel()
		s.answer(q, nil, ErrUnknownCall)
		return
	}
	s.p.t.wg.Go(func() {
		defer cancel()
		data, err := f(ctx, s.from, name, q.Body)
		s.answer(q, data, err)
	})
}

func cut(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return "", false
}

// answer sends the answer to a question.
func (s *session) answer(q *wire.Question, data []byte, err error) {
	status := wire.StatusOK
	switch {
	case errors.Is(err, ErrUnknownCall):
		status, data = wire.StatusUnknown, nil
	case err != nil:
		status, data = wire.StatusFailed, []byte(err.Error())
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.session == s {
		s.wire.Answer(q, status, data)
		s.flushSoon(q.Urgent)
	}
}

// takePayload hands on a payload. L is the link when it was complete.
func (s *session) takePayload(l *link, topic string, q *wire.Question) error {
	t := s.p.t
	if l == nil || l.dropped.Load() {
		return errNotTaken
	}
	err := errNotTaken
	if f := t.config.Receive; f != nil {
		err = f(l.node, topic, q.Body)
	}
	if err != nil {
		t.refusals.add(CauseHandler, err, slog.Uint64("peer_node", uint64(l.node)), slog.String("peer", s.p.name),
			slog.String("topic", topic), slog.Int("bytes", len(q.Body)))
	}
	return err
}

// opened takes in a stream that the other end has opened.
func (s *session) opened(stream *wire.Stream) {
	c := &streamConn{s: s, stream: stream, changed: make(chan struct{})}
	stream.User = c
	if f := s.p.t.config.Accept; f == nil || !f(s.from, stream.Name, c) {
		_ = c.Close() // never fails
	}
}
