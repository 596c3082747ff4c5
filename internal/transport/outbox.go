package transport

import (
	"encoding/binary"
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

const (
	// outboxSlack is how many acknowledged bytes may lie unused at the front,
	// and outboxKeep how much memory an empty outbox keeps.
	outboxSlack = 64 << 10
	outboxKeep  = 1 << 20
)

// outbox holds the encoded messages for one peer, from the first that is not
// acknowledged to the newest. It has no lock.
//
//	buf: ...acknowledged... | written, unacknowledged | not yet written
//	                        head                      next
type outbox struct {
	maxMessages, maxBytes int

	buf        []byte
	head, next int

	// Numbers of messages: all up to acked are acknowledged, all up to sent
	// have been given to a connection, last is the newest.
	acked, sent, last uint64
	// given is the largest that sent has ever been: messages after it have never left this
	// gateway.
	given uint64
}

// put encodes m at the end.
func (o *outbox) put(pool string, m *kmutex.Message) error {
	if o.messages() >= o.maxMessages {
		return fmt.Errorf("%w: %d messages", errOverflow, o.messages())
	}
	old := len(o.buf)
	buf, err := appendMessage(o.buf, o.last+1, pool, m)
	if err != nil {
		return err
	}
	o.buf = buf
	if o.bytes() > o.maxBytes {
		o.buf = o.buf[:old]
		return fmt.Errorf("%w: %d bytes", errOverflow, o.bytes())
	}
	o.last++
	return nil
}

// messages returns how many messages are not acknowledged.
func (o *outbox) messages() int { return int(o.last - o.acked) }

// bytes returns how many bytes those are.
func (o *outbox) bytes() int { return len(o.buf) - o.head }

// unwritten reports whether there is something to take.
func (o *outbox) unwritten() bool { return o.sent < o.last }

// take appends frames that are not yet written to dst, at least one if there
// is one, and stops at a frame's end before limit bytes are exceeded. It
// returns how many.
func (o *outbox) take(dst []byte, limit int) ([]byte, int) {
	from, before := o.next, o.sent
	if len(o.buf)-from <= limit {
		o.next, o.sent = len(o.buf), o.last
	} else {
		for o.sent < o.last {
			size := o.frameSize(o.next)
			if o.next > from && o.next+size-from > limit {
				break
			}
			o.next += size
			o.sent++
		}
	}
	o.given = max(o.given, o.sent)
	return append(dst, o.buf[from:o.next]...), int(o.sent - before)
}

// unsent returns the messages that have never been given to a connection.
func (o *outbox) unsent() []Unsent {
	var out []Unsent
	pools := make(names)
	at := o.head
	for number := o.acked + 1; number <= o.last; number++ {
		size := o.frameSize(at)
		var f frame
		if number > o.given && decodeFrame(o.buf[at+lengthSize:at+size], pools, &f) == nil {
			out = append(out, Unsent{Pool: f.pool, Message: f.message})
		}
		at += size
	}
	return out
}

// frameSize returns the size of the frame at offset i, with its length.
func (o *outbox) frameSize(i int) int {
	return lengthSize + int(binary.BigEndian.Uint32(o.buf[i:]))
}

// ack drops everything up to number. What was not sent cannot be acknowledged,
// nor an acknowledgement taken back.
func (o *outbox) ack(number uint64) error {
	if number < o.acked || number > o.sent {
		return fmt.Errorf("acknowledged %d, but %d is and %d was sent", number, o.acked, o.sent)
	}
	for o.acked < number {
		o.head += o.frameSize(o.head)
		o.acked++
	}
	switch rest := len(o.buf) - o.head; {
	case rest == 0:
		o.buf, o.head, o.next = o.buf[:0], 0, 0
		if cap(o.buf) > outboxKeep {
			o.buf = nil
		}
	case o.head > outboxSlack && o.head > rest:
		// More is dropped than moved: a constant cost per byte sent.
		copy(o.buf, o.buf[o.head:])
		o.buf = o.buf[:rest]
		o.next -= o.head
		o.head = 0
	}
	return nil
}

// rewind makes ready for a new connection: the peer has received everything up
// to number, the rest is to be written again.
func (o *outbox) rewind(number uint64) error {
	if err := o.ack(number); err != nil {
		return err
	}
	o.next, o.sent = o.head, o.acked
	return nil
}
