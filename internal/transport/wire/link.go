package wire

import (
	"errors"
	"fmt"
)

// ErrFull says that a queue is full and what was to be sent was not taken.
var ErrFull = errors.New("queue full")

// Link is what two incarnations share over all connections between their processes: the
// messages that one of them has sent and the other has not acknowledged, and how many have
// come in. It belongs to one [Conn] at a time: see [Conn.SetLink]. It has no lock.
//
//	buf: ...acknowledged... | written, unacknowledged | not yet written
//	                        head                      next
type Link struct {
	// Self and Peer are the two nodes.
	Self, Peer uint64
	// MaxMessages and MaxBytes bound what may wait, sent but unacknowledged messages included.
	MaxMessages, MaxBytes int

	buf        []byte
	head, next int
	// All messages up to acked are acknowledged, all up to sent have been given to a
	// connection, last is the newest.
	acked, sent, last uint64
	// given is the largest that sent has ever been: messages after it have never left this
	// process.
	given uint64
	// received is the number of the last message that has come in.
	received uint64
	// begun: a part of the next message is written.
	begun bool
}

// slack is how many acknowledged bytes may lie unused at the front of a link's buffer.
const slack = 64 << 10

// Begin returns the buffer to which the bytes of a new message are to be appended, for Commit.
func (l *Link) Begin() []byte { return open(l.buf, typeMessage) }

// Commit queues the message that was appended to what Begin returned, of which nothing else may
// be changed. It returns ErrFull if there is no room.
func (l *Link) Commit(buf []byte) error {
	start := len(l.buf)
	size := len(buf) - start
	switch {
	case l.Queued() >= l.MaxMessages:
		return fmt.Errorf("%w: %d messages", ErrFull, l.Queued())
	case len(l.buf)-l.head+size > l.MaxBytes:
		return fmt.Errorf("%w: %d bytes", ErrFull, len(l.buf)-l.head)
	}
	if size <= headSize+fragment {
		l.buf = seal(buf, start)
	} else {
		long := append([]byte(nil), buf[start+headSize:]...)
		l.buf = buf[:start]
		for len(long) > fragment {
			l.buf = seal(append(open(l.buf, typeMessage|flagged), long[:fragment]...), start)
			start, long = len(l.buf), long[fragment:]
		}
		l.buf = seal(append(open(l.buf, typeMessage), long...), start)
	}
	l.last++
	return nil
}

// Queued returns how many messages are not acknowledged.
func (l *Link) Queued() int { return int(l.last - l.acked) }

// Unsent calls yield with each message that has never been given to a connection.
func (l *Link) Unsent(yield func(message []byte)) {
	number, at := l.acked, l.head
	for at < len(l.buf) {
		end := l.messageEnd(at)
		if number++; number > l.given {
			yield(whole(l.buf[at:end]))
		}
		at = end
	}
}

// whole returns the bytes of a message without the heads of its frames.
func whole(frames []byte) []byte {
	size := frameSize(frames)
	message := frames[headSize:size:size]
	for frames = frames[size:]; len(frames) > 0; frames = frames[size:] {
		size = frameSize(frames)
		message = append(message, frames[headSize:size]...)
	}
	return message
}

// messageEnd returns where the message ends whose first frame is at offset i.
func (l *Link) messageEnd(i int) int {
	for {
		more := l.buf[i+lengthSize]&flagged != 0
		i += frameSize(l.buf[i:])
		if !more {
			return i
		}
	}
}

// due reports whether there is something to take: a message begins only while fewer bytes than
// the window are not acknowledged.
func (l *Link) due(window int) bool {
	return l.unwritten() && (l.begun || l.flying() < window)
}

func (l *Link) unwritten() bool { return l.next < len(l.buf) }

// flying returns how many bytes are written and not acknowledged.
func (l *Link) flying() int { return l.next - l.head }

// take appends frames that are due to dst until that has limit bytes, one at least if dst is
// empty. It returns how many messages these end.
func (l *Link) take(dst []byte, limit, window int) ([]byte, int) {
	from, before := l.next, l.sent
	if !l.begun {
		limit = min(limit, len(dst)+window-l.flying())
	}
	if len(dst)+len(l.buf)-from <= limit {
		l.next, l.sent, l.begun = len(l.buf), l.last, false
		l.given = max(l.given, l.last)
	} else {
		for l.next < len(l.buf) {
			size := frameSize(l.buf[l.next:])
			if n := len(dst) + l.next - from; n > 0 && n+size > limit {
				break
			}
			l.given = max(l.given, l.sent+1) // or a part of it
			if l.begun = l.buf[l.next+lengthSize]&flagged != 0; !l.begun {
				l.sent++
			}
			l.next += size
		}
	}
	return append(dst, l.buf[from:l.next]...), int(l.sent - before)
}

// ack drops everything up to number. What was not sent cannot be acknowledged, nor an
// acknowledgement taken back.
func (l *Link) ack(number uint64) error {
	if number < l.acked || number > l.sent {
		return fmt.Errorf("acknowledged %d, but %d is and %d was sent", number, l.acked, l.sent)
	}
	for l.acked < number {
		l.head = l.messageEnd(l.head)
		l.acked++
	}
	switch rest := len(l.buf) - l.head; {
	case rest == 0:
		l.buf, l.head, l.next = l.buf[:0], 0, 0
		if cap(l.buf) > keepBuffer {
			l.buf = nil
		}
	case l.head > slack && l.head > rest:
		// More is dropped than moved: a constant cost per byte sent.
		copy(l.buf, l.buf[l.head:])
		l.buf = l.buf[:rest]
		l.next -= l.head
		l.head = 0
	}
	return nil
}

// rewind makes ready for a new connection: the peer has received everything up to number, the
// rest is to be written again.
func (l *Link) rewind(number uint64) error {
	if err := l.ack(number); err != nil {
		return err
	}
	l.next, l.sent, l.begun = l.head, l.acked, false
	return nil
}
