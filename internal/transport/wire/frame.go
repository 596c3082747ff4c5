package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	lengthSize = 2
	// headSize is what comes before a message's bytes: length and type.
	headSize = lengthSize + 1
	// maxFrame bounds the length of a frame, and fragment the bytes of a message, a datagram
	// or of data in one. The rest is for what describes them.
	maxFrame = 32 << 10
	fragment = maxFrame - 256
	// MaxName bounds the name of a call, in bytes.
	MaxName = 128
)

// What ends a connection. Errors of Receive wrap one of these.
var (
	// ErrFrame says that a frame cannot be decoded.
	ErrFrame = errors.New("bad frame")
	// ErrOversized says that a frame is longer than maxFrame. It wraps ErrFrame.
	ErrOversized = fmt.Errorf("%w: oversized", ErrFrame)
	// ErrProtocol says that a frame is well-formed, but not now.
	ErrProtocol = errors.New("unexpected frame")
	// errSequence says that the two ends of a link disagree on what was received, because one
	// has forgotten the other.
	errSequence = errors.New("the ends disagree on what was received")
)

type frameType uint8

const (
	typeMessage  frameType = 1 + iota
	typeDatagram           // the last that has a flag
	typeCall
	typeData
	typeAnswer
	typeCancel
	typeCredit
	typePing
	typePong
	typeLink
	typeAck
	typePadding
)

// flagged is set in the type of a frame that has the flag of its type.
const flagged = 0x80

// frame is one decoded frame. Its bytes are part of what was decoded.
type frame struct {
	kind    frameType
	flag    bool
	id      uint64 // of a call, a ping; how many were received (ack)
	channel Channel
	name    []byte
	status  Status
	size    int // of a body or an answer; bytes that were read (credit)
	link    announcement
	data    []byte
}

// announcement says which link an end serves on a connection, and how many messages it has
// received over it and sent. The zero value: none.
type announcement struct{ self, peer, received, given uint64 }

// open appends the head of a frame, for seal to complete.
func open(dst []byte, kind frameType) []byte { return append(dst, 0, 0, byte(kind)) }

// seal sets the length of the frame that begins at start.
func seal(dst []byte, start int) []byte {
	binary.BigEndian.PutUint16(dst[start:], uint16(len(dst)-start-lengthSize))
	return dst
}

// frameSize returns the size of the frame that b begins with, its length included.
func frameSize(b []byte) int { return lengthSize + int(binary.BigEndian.Uint16(b)) }

// appendNumbers appends a frame that consists of numbers.
func appendNumbers(dst []byte, kind frameType, numbers ...uint64) []byte {
	start := len(dst)
	dst = open(dst, kind)
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, n)
	}
	return seal(dst, start)
}

// appendCall appends the frame that opens a call, with its body if that fits.
func appendCall(dst []byte, id uint64, name string, body []byte) []byte {
	start := len(dst)
	dst = appendName(binary.AppendUvarint(open(dst, typeCall), id), name)
	return seal(appendSized(dst, body), start)
}

// appendAnswer appends the frame that begins an answer, and ends it if it fits.
func appendAnswer(dst []byte, id uint64, status Status, body []byte) []byte {
	start := len(dst)
	dst = append(binary.AppendUvarint(open(dst, typeAnswer), id), byte(status))
	return seal(appendSized(dst, body), start)
}

func appendData(dst []byte, id uint64, data []byte) []byte {
	start := len(dst)
	return seal(append(binary.AppendUvarint(open(dst, typeData), id), data...), start)
}

func appendName(dst []byte, name string) []byte {
	return append(append(dst, byte(len(name))), name...)
}

// appendSized appends the size of a body, and the body if it is not too long for a frame.
func appendSized(dst, body []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	if len(body) <= fragment {
		dst = append(dst, body...)
	}
	return dst
}

// appendDatagram appends the frames of a datagram.
func appendDatagram(dst []byte, ch Channel, data []byte) []byte {
	for {
		start, kind, part := len(dst), typeDatagram, data
		if len(data) > fragment {
			kind |= flagged
			part = data[:fragment]
		}
		data = data[len(part):]
		dst = seal(append(append(open(dst, kind), byte(ch)), part...), start)
		if kind&flagged == 0 {
			return dst
		}
	}
}

// decode decodes a frame without its length.
func decode(body []byte, f *frame) error {
	c := Cursor{Rest: body}
	head := c.Byte()
	*f = frame{kind: frameType(head &^ flagged), flag: head&flagged != 0}
	switch f.kind {
	case typeMessage, typePadding:
		f.data = c.all()
	case typeDatagram:
		if f.channel = Channel(c.Byte()); f.channel >= channels {
			c.Fail(ErrRange)
		}
		f.data = c.all()
	case typeCall:
		f.id, f.name = c.Positive(), c.Name(MaxName)
		c.sized(f)
	case typeData:
		f.id, f.data = c.Positive(), c.all()
	case typeAnswer:
		f.id, f.status = c.Positive(), Status(c.Byte())
		if f.status >= statuses {
			c.Fail(ErrRange)
		}
		c.sized(f)
	case typeCancel, typePing, typePong:
		f.id = c.Positive()
	case typeAck:
		f.id = c.Uvarint()
	case typeCredit:
		f.size = int(c.UpTo(maxWindow))
	case typeLink:
		f.link = announcement{c.Uvarint(), c.Uvarint(), c.Uvarint(), c.Uvarint()}
	default:
		c.Fail(ErrRange)
	}
	if f.flag && f.kind > typeDatagram {
		c.Fail(ErrRange)
	}
	if len(c.Rest) > 0 {
		c.Fail(ErrTrailing)
	}
	if c.Err != nil {
		return fmt.Errorf("%w: type %d: %w", ErrFrame, f.kind, c.Err)
	}
	return nil
}

// sized reads a body's size, and the body where it is in the frame.
func (c *Cursor) sized(f *frame) {
	f.size = int(c.UpTo(MaxBody))
	f.data = c.all()
	want := f.size
	if want > fragment {
		want = 0
	}
	if c.Err == nil && len(f.data) != want {
		c.Fail(ErrRange)
	}
}
