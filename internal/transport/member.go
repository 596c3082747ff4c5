package transport

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// serve makes l the link to its process, in place of any other, and returns what that one
// leaves.
func (l *link) serve(addr string) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addr = addr
	p.link = l
	if s := p.session; s != nil {
		s.dropPayloads()
		s.wire.SetLink(l.wire)
		s.wakeWriter()
		p.review(s, nil)
	}
	p.want()
	p.keep(1)
}

// drop ends the link, and returns the messages that it has never sent. It does not wait.
func (l *link) drop() []Unsent {
	l.dropped.Store(true)
	p := l.p
	defer p.t.leave(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(-1)
	p.release(0)
	if p.link == l {
		p.link = nil
		if s := p.session; s != nil {
			s.dropPayloads()
			s.wire.SetLink(nil)
			s.wakeWriter()
		}
	}
	var unsent []Unsent
	pools := make(names)
	l.wire.Unsent(func(data []byte) {
		u := Unsent{To: l.node}
		var err error
		if u.Pool, err = decodeMessage(data, pools, &u.Message); err == nil {
			unsent = append(unsent, u)
		}
	})
	l.wire = &wire.Link{}
	return unsent
}

// move notes where the peer is now.
func (l *link) move(addr string) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.addr = addr
}

// send queues m, and writes it now or leaves it to the session's goroutine.
func (l *link) send(pool string, m *kmutex.Message, now bool) error {
	p := l.p
	p.mu.Lock()
	if l.dropped.Load() {
		p.mu.Unlock()
		return fmt.Errorf("%w: node %d", ErrUnknownPeer, l.node)
	}
	buf, err := appendMessage(l.wire.Begin(), pool, m)
	if err == nil {
		err = l.wire.Commit(buf)
	}
	if err == nil {
		p.session.flushSoon(now)
	}
	p.mu.Unlock()
	if errors.Is(err, wire.ErrFull) {
		l.p.t.refusals.add(CauseOverflow, err, l.attrs()...)
	}
	return err
}
