package transport

import (
	"fmt"
	"log/slog"
)

// inPayload is a payload that is coming in.
type inPayload struct {
	id    uint64
	topic string
	size  int
	data  []byte
}

// inPayloads are the payloads that one connection receives. Only the reader
// uses it, except for what is marked.
type inPayloads struct {
	open   map[uint64]*inPayload
	lastID uint64
	unread int // bytes read that the peer has not been told of
	// whole takes complete payloads to the goroutine that hands them on. It
	// never blocks: there is room for all that may be unfinished.
	whole chan *inPayload

	// Under link.mu: what the peer has offered and has not been told to be
	// taken.
	count, bytes int
	// Under link.mu: for the writer.
	readDue  int
	takenDue []takenPayload
}

type takenPayload struct {
	id uint64
	ok bool
}

func newInPayloads() inPayloads {
	return inPayloads{open: make(map[uint64]*inPayload), whole: make(chan *inPayload, maxPayloads)}
}

// due reports whether take has something to write.
func (in *inPayloads) due() bool { return in.readDue > 0 || len(in.takenDue) > 0 }

// take appends what the peer is to be told.
func (in *inPayloads) take(batch []byte) []byte {
	if in.readDue > 0 {
		batch = appendControl(batch, frameRead, uint64(in.readDue))
		in.readDue = 0
	}
	for _, t := range in.takenDue {
		batch = appendTaken(batch, t.id, t.ok)
	}
	in.takenDue = in.takenDue[:0]
	return batch
}

// takePayload handles one frame that belongs to a payload.
func (s *session) takePayload(f *frame) error {
	in, l := &s.in, s.link
	switch f.kind {
	case frameOffer:
		return s.offered(f)
	case frameChunk:
		p := in.open[f.number]
		if p == nil || len(p.data)+len(f.data) > p.size {
			return fmt.Errorf("%w: a chunk of %d bytes of payload %d", errProtocol, len(f.data), f.number)
		}
		p.add(f.data)
		in.unread += len(f.data)
		if len(p.data) == p.size {
			delete(in.open, p.id)
			in.whole <- p
		}
		// The peer gets more credit in time, so it never has to stop.
		if in.unread >= payloadWindow/4 || len(in.open) == 0 {
			l.mu.Lock()
			defer l.mu.Unlock()
			in.readDue += in.unread
			in.unread = 0
			l.wakeWriter()
		}
	case frameAbandon:
		p := in.open[f.number]
		if p == nil {
			return fmt.Errorf("%w: payload %d abandoned, which is not coming in", errProtocol, f.number)
		}
		delete(in.open, p.id)
		l.mu.Lock()
		defer l.mu.Unlock()
		in.count--
		in.bytes -= p.size
	case frameRead:
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := s.out.read(f.number); err != nil {
			return err
		}
		l.wakeWriter()
	case frameTaken:
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := s.out.taken(f.number, f.ok); err != nil {
			return err
		}
		l.wakeWriter()
	default: // belongs to no payload
	}
	return nil
}

// offered makes ready for a payload that the peer announces.
func (s *session) offered(f *frame) error {
	in, l := &s.in, s.link
	if f.number != in.lastID+1 {
		return fmt.Errorf("%w: payload %d after %d", errProtocol, f.number, in.lastID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.count == maxPayloads || in.bytes+f.size > maxPayload {
		return fmt.Errorf("%w: a payload of %d bytes, besides %d with %d bytes", errProtocol, f.size, in.count, in.bytes)
	}
	in.lastID = f.number
	in.count++
	in.bytes += f.size
	in.open[f.number] = &inPayload{id: f.number, topic: f.topic, size: f.size}
	return nil
}

// add appends a chunk. Memory grows with what arrives, not with what was
// announced.
func (p *inPayload) add(chunk []byte) {
	if need := len(p.data) + len(chunk); need > cap(p.data) {
		grown := make([]byte, len(p.data), min(p.size, max(2*cap(p.data), need)))
		copy(grown, p.data)
		p.data = grown
	}
	p.data = append(p.data, chunk...)
}

// receive hands complete payloads on, until the connection is over.
func (s *session) receive() {
	l := s.link
	for {
		var p *inPayload
		select {
		case p = <-s.in.whole:
		case <-s.stop:
			return
		}
		err := errNotTaken
		if f := l.t.config.Receive; f != nil {
			err = f(l.node, p.topic, p.data)
		}
		if err != nil {
			l.t.refusals.add(CauseHandler, err, append(l.attrs(), slog.String("topic", p.topic), slog.Int("bytes", p.size))...)
		}
		l.mu.Lock()
		s.in.count--
		s.in.bytes -= p.size
		s.in.takenDue = append(s.in.takenDue, takenPayload{p.id, err == nil})
		l.wakeWriter()
		l.mu.Unlock()
	}
}
