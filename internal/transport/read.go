package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// readBuffer holds what one system call reads. A frame that is longer is
	// put together elsewhere.
	readBuffer = 64 << 10
	// maxBatch bounds one write, unless a single frame is longer.
	maxBatch = 64 << 10
	// An acknowledgement goes out with the next write, but no later than after
	// this many messages or bytes.
	ackMessages = 256
	ackBytes    = 256 << 10
)

// run reads and writes until the connection is over, for whatever reason.
func (s *session) run() {
	l := s.link
	s.acked.Store(l.received.Load()) // said in the hello
	var out io.Writer = s.conn
	var wg sync.WaitGroup
	if slow := l.t.config.slow; slow != nil {
		out = slow(s)
	} else {
		s.socket = s.raw.unblock()
	}
	l.begin(s)
	wg.Go(func() { s.fail(s.write(out)) })
	wg.Go(s.receive)
	s.fail(s.read())
	wg.Wait()
	l.end(s, s.err)
}

// read takes frames until one is bad or the connection is over.
func (s *session) read() error {
	in := bufio.NewReaderSize(listening{s}, readBuffer)
	pools := make(names)
	var f frame
	for unacked := 0; ; {
		head, err := in.Peek(lengthSize)
		if err != nil {
			return err
		}
		size, err := frameLength(head)
		if err != nil {
			return s.refused(err)
		}
		err = readFrame(in, lengthSize+size, func(b []byte) error {
			return decodeFrame(b[lengthSize:], pools, &f)
		})
		if errors.Is(err, errFrame) {
			return s.refused(err)
		}
		if err != nil {
			return err
		}
		if s.failed() {
			return s.err // what else is buffered will be sent again
		}
		if err := s.take(&f); err != nil {
			return s.refused(err)
		}
		unacked += size
		if unacked >= ackBytes || s.link.received.Load()-s.acked.Load() >= ackMessages {
			unacked = 0
			s.due(&s.ackDue)
		}
	}
}

// readFrame calls f with the next size bytes. They are f's until it returns.
func readFrame(in *bufio.Reader, size int, f func([]byte) error) error {
	if size <= in.Size() {
		b, err := in.Peek(size)
		if err != nil {
			return err
		}
		err = f(b)
		_, _ = in.Discard(size) // was peeked
		return err
	}
	// Grows with what arrives: a length alone takes no memory.
	var b bytes.Buffer
	if _, err := io.CopyN(&b, in, int64(size)); err != nil {
		return err
	}
	return f(b.Bytes())
}

// due sets a flag for the writer.
func (s *session) due(flag *bool) {
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	*flag = true
	l.wakeWriter()
}

var errProtocol = errors.New("unexpected frame")

// take handles one frame.
func (s *session) take(f *frame) error {
	l := s.link
	switch f.kind {
	case frameMessage:
		return s.deliver(f)
	case frameAck:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed {
			return nil // the outbox is gone
		}
		if err := l.out.ack(f.number); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		l.release()
	case framePing:
		l.mu.Lock()
		defer l.mu.Unlock()
		s.pong = f.number
		l.wakeWriter()
	case framePong:
		return s.ponged(f.number)
	default:
		return s.takePayload(f)
	}
	return nil
}

// ponged takes the answer to a ping.
func (s *session) ponged(id uint64) error {
	l := s.link
	l.mu.Lock()
	if s.pinged.IsZero() || id != s.pingID {
		l.mu.Unlock()
		return fmt.Errorf("%w: answer to ping %d, which was not asked", errProtocol, id)
	}
	l.sampleRTT(time.Since(s.pinged))
	s.pinged = time.Time{}
	up := l.prove(s)
	if len(l.waiters) > 0 {
		s.pingDue = true // for another acknowledgement
	}
	if s.pingDue {
		l.wakeWriter()
	}
	l.mu.Unlock()
	if up {
		l.t.config.Logger.LogAttrs(l.ctx, slog.LevelInfo, "link up", append(l.attrs(), slog.String("remote", s.raw.RemoteAddr().String()))...)
	}
	return nil
}

// deliver hands a message to the handler, unless it was before.
func (s *session) deliver(f *frame) error {
	l := s.link
	last := l.received.Load()
	switch {
	case f.number <= last:
		return nil
	case f.number > last+1:
		return fmt.Errorf("%w: message %d after %d", errProtocol, f.number, last)
	}
	if err := l.t.config.Handler.Deliver(l.node, f.pool, f.message); err != nil {
		attrs := append(l.attrs(), slog.String("pool", f.pool), slog.String("kind", f.message.Kind.String()))
		l.t.refusals.add(CauseHandler, err, attrs...)
	}
	l.received.Store(f.number)
	return nil
}

// refused counts a bad frame; it is what ends the session.
func (s *session) refused(err error) error {
	cause := CauseFrame
	switch {
	case s.failed():
		return err
	case errors.Is(err, errOversized):
		cause = CauseOversized
	case errors.Is(err, errVersion):
		cause = CauseVersion
	case errors.Is(err, errProtocol):
		cause = CauseProtocol
	}
	s.link.t.refusals.add(cause, err, s.link.attrs()...)
	return err
}

// listening notes that something has arrived.
type listening struct{ s *session }

func (r listening) Read(b []byte) (int, error) {
	n, err := r.s.conn.Read(b)
	if n > 0 {
		r.s.heard.Store(true)
	}
	return n, err
}
