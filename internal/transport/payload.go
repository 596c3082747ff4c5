package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// ErrNotYet is for a Receive that does not know yet what to do with a payload, as is usual for a moment after
// a restart.
var ErrNotYet = errors.New("not yet")

// ErrNotTaken says that the peer's Receive returned an error, or that the peer has no Receive,
// or does not serve the link any more. The peer logs it, but for ErrNotYet.
var ErrNotTaken = errors.New("payload not taken")

const (
	// maxPayload bounds the size of one payload.
	maxPayload = wire.MaxBody
	// maxTopic bounds the length of a payload's topic.
	maxTopic = wire.MaxName - len(payloadName)
)

// SendPayload sends a payload of 1 to maxPayload bytes to a peer, whichever end opened the
// connection, and waits until the peer's [Config.Receive] has returned. Messages do not wait
// behind it: it goes in pieces between them.
//
// Payloads of one topic arrive in the order of the calls, those of different
// topics in any order. A payload is lost with its connection and not sent again; then
// SendPayload returns ErrLinkDown. When ctx ends, so does the sending, and the peer drops
// what has arrived; but a payload that was written whole by then may be delivered.
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
	call := &wire.Call{Name: payloadName + topic, Body: payload, InTurn: true}
	p := l.p
	p.mu.Lock()
	s := p.session
	linked := false
	if s != nil && p.link == l {
		linked, _ = s.wire.Linked()
	}
	if !linked {
		p.mu.Unlock()
		return fmt.Errorf("%w: node %d (%s)", ErrLinkDown, to, p.name)
	}
	s.payloads[call] = true
	_, err := s.ask(ctx, call)
	p.mu.Lock()
	delete(s.payloads, call)
	p.mu.Unlock()
	if errors.Is(err, errFailed) {
		err = fmt.Errorf("%w: node %d: %w", ErrNotTaken, to, err)
	}
	return err
}
