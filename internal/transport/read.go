package transport

import (
	"errors"
	"io"
	"sync"

	"github.com/kgate/kgate/internal/transport/wire"
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
	s.read(make([]byte, firstBuffer), 0)
	<-s.stop // another goroutine may read on
	wg.Wait()
}

const (
	// A session's buffer for what it reads begins with firstBuffer bytes, and grows while one
	// read fills it.
	firstBuffer = 4 << 10
	readBuffer  = 64 << 10
)

// read takes in what arrives until the connection is over, or another goroutine reads on. Have
// bytes of buf have come.
func (s *session) read(buf []byte, have int) {
	if err := s.readOn(buf, have); !errors.Is(err, errReadOn) {
		s.fail(err)
		s.p.end(s, s.err)
	}
}

// errReadOn says that another goroutine reads on.
var errReadOn = errors.New("another goroutine reads")

func (s *session) readOn(buf []byte, have int) error {
	for {
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
	p.mu.Lock()
	p.waiting.wait(p)
	if p.session != s || !p.open(s, s.boot) {
		p.mu.Unlock()
		return 0, errReplaced
	}
	used, events, err := s.wire.Receive(p.t.now(), b)
	l, messages := p.link, 0
	for i := range events {
		switch events[i].Kind {
		case wire.Linked, wire.Proved:
			p.review(s, nil)
			if events[i].Kind == wire.Proved {
				p.t.tell(Change{Name: p.name, Boot: s.boot, Up: true, Proved: true})
			}
		case wire.Message:
			messages++
		case wire.Asked:
			s.admit(l, events[i].Question)
		default: // for others
		}
	}
	if l != nil && l.up {
		l.rtt.Store(int64(s.wire.RTT()))
	}
	if s.wire.Due() {
		s.wakeWriter()
	}
	inline := messages > 0 && p.take(s, l, events, b[used:])
	p.mu.Unlock()
	for i := range events {
		s.handle(&events[i])
	}
	if err != nil {
		s.refused(err)
	}
	if inline {
		if bad := s.deliverInline(l, events, messages); err == nil {
			err = bad
		}
	}
	return used, err
}

// handle hands on one event that is no message.
func (s *session) handle(e *wire.Event) {
	switch e.Kind {
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
	default: // taken in before, or delivered behind the others
	}
}

// readMeanwhile has another goroutine read on if this one has delivered for more than a tick. It is
// called under the lock.
func (s *session) readMeanwhile() {
	if !s.inline || s.ticks-s.since < 2 {
		return
	}
	buf := make([]byte, readBuffer) // longer than any frame
	have := copy(buf, s.rest)
	s.inline, s.rest = false, nil
	s.wire.Detach()
	s.p.t.wg.Go(func() { s.read(buf, have) })
}
