package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Messages are delivered by the goroutine that reads them: to wake up another one would cost a
// third of a message's time. If that takes too long, another goroutine reads on, so that pings and
// answers do not wait, and messages that come wait. Whoever has begun to deliver delivers
// them, too: one at a time, in order, also those of a connection that follows.

// arrivals are the messages from a process that wait to be delivered. The process's lock guards it.
type arrivals struct {
	busy  bool // somebody delivers
	queue []delivery
	bytes int
	room  *sync.Cond // waits for fewer bytes; nil: nobody has
}

// delivery is a message that waits.
type delivery struct {
	s    *session
	l    *link
	data []byte
}

// mostWaiting bounds the bytes of arrivals, but for what one read brings. What the other end may send
// over one connection and what is not acknowledged is far less.
const mostWaiting = 8 << 20

// wait waits for room. It is called under the lock.
func (in *arrivals) wait(p *process) {
	for in.bytes > mostWaiting {
		if in.room == nil {
			in.room = sync.NewCond(&p.mu)
		}
		in.room.Wait()
	}
}

// take reports whether the messages among the events are to be delivered by the caller. Otherwise they
// wait for who delivers. Rest is what the caller has read behind them. It is called under the lock.
func (p *process) take(s *session, l *link, events []wire.Event, rest []byte) bool {
	in := &p.waiting
	if !in.busy {
		in.busy, s.inline, s.since, s.rest = true, true, s.ticks, rest
		return true
	}
	for i := range events {
		if e := &events[i]; e.Kind == wire.Message {
			in.queue = append(in.queue, delivery{s, l, bytes.Clone(e.Data)})
			in.bytes += len(e.Data)
		}
	}
	return false
}

// deliverInline delivers the messages of one read, and what has come meanwhile. It returns errReadOn if
// another goroutine reads on.
func (s *session) deliverInline(l *link, events []wire.Event, messages int) (err error) {
	for i := range events {
		if e := &events[i]; e.Kind == wire.Message && err == nil {
			err = s.deliver(l, e.Data)
		}
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivered(s, l, messages)
	if !s.inline { // another goroutine reads on
		if err != nil {
			s.fail(err)
		}
		err = errReadOn
	}
	s.inline, s.rest = false, nil
	p.deliverWaiting()
	p.waiting.busy = false
	return err
}

// deliverWaiting delivers what waits. It is called under the lock, and lets it go meanwhile.
func (p *process) deliverWaiting() {
	in := &p.waiting
	for len(in.queue) > 0 {
		all := in.queue
		in.queue, in.bytes = nil, 0
		if in.room != nil {
			in.room.Broadcast()
		}
		for _, d := range all {
			p.mu.Unlock()
			err := d.s.deliver(d.l, d.data)
			if err != nil {
				d.s.fail(err)
			}
			p.mu.Lock()
			p.delivered(d.s, d.l, 1)
		}
	}
}

// delivered has messages acknowledged, unless another connection has done that. It is called under the lock.
func (p *process) delivered(s *session, l *link, messages int) {
	if p.session == s && p.link == l {
		s.wire.Delivered(messages)
		if s.wire.Due() {
			s.wakeWriter()
		}
	}
}

// deliver hands on a message.
func (s *session) deliver(l *link, data []byte) error {
	if l.dropped.Load() {
		return nil
	}
	var m kmutex.Message
	pool, err := decodeMessage(data, s.pools, &m)
	if err != nil {
		s.refused(err)
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
