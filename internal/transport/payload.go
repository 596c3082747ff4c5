package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kgate/kgate/kmutex"
)

// Why SendPayload fails, besides the errors of Send.
var (
	// ErrLinkDown says that there is no link to the peer, or that it broke
	// before the peer had taken the payload. The peer may have taken it
	// nevertheless.
	ErrLinkDown = errors.New("transport: link down")
	// errNotTaken says that the peer's Receive returned an error, or that the
	// peer has no Receive.
	errNotTaken = errors.New("transport: payload not taken")
)

// SendPayload sends a payload of 1 to maxPayload bytes over the link to a peer,
// whichever end opened it, and waits until the peer's [Config.Receive] has
// returned. Messages do not wait behind it: it goes in chunks between them.
//
// Payloads of one topic arrive in the order of the calls, those of different
// topics in any order. A payload is lost with its connection and not sent again; then
// SendPayload returns ErrLinkDown. When ctx ends, so does the sending, and the peer drops
// what has arrived; but a payload that was written whole by then is delivered.
//
// SendPayload blocks: do not call it under a lock that Receive or Deliver
// takes. The payload must not change until it returns.
func (t *Transport) SendPayload(ctx context.Context, to kmutex.Node, topic string, payload []byte) error {
	switch {
	case topic == "" || len(topic) > maxTopic:
		return fmt.Errorf("%w: the topic has %d bytes, not 1 to %d", errMessage, len(topic), maxTopic)
	case len(payload) == 0 || len(payload) > maxPayload:
		return fmt.Errorf("%w: the payload has %d bytes, not 1 to %d", errMessage, len(payload), maxPayload)
	}
	l := t.peers.Load().links[to]
	switch {
	case t.ctx.Err() != nil:
		return ErrClosed
	case l == nil:
		return fmt.Errorf("%w: node %d", ErrUnknownPeer, to)
	}
	p := &outPayload{topic: topic, size: len(payload), rest: payload, done: make(chan error, 1)}
	s, err := l.offer(p)
	if err != nil {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		s.out.abandon(p)
		l.wakeWriter()
		return fmt.Errorf("transport: payload to node %d: %w", to, ctx.Err())
	}
}

// offer queues p on the link's connection.
func (l *link) offer(p *outPayload) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session
	switch {
	case l.closed:
		return nil, fmt.Errorf("%w: node %d", ErrUnknownPeer, l.node)
	case s == nil:
		return nil, fmt.Errorf("%w: node %d (%s)", ErrLinkDown, l.node, l.name)
	}
	if err := s.out.add(p); err != nil {
		return nil, err
	}
	l.wakeWriter()
	return s, nil
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

// offered prepares for a payload that the peer announces.
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
