package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// protocolVersion is in the preamble and in every frame.
//
// 4: tokens rest away from the baton (recall, tokens); epochs have names for them.
const protocolVersion = 4

const (
	// lengthSize is the size of the length before each frame.
	lengthSize = 4
	// maxFrame bounds the length of a frame. The longest message, a baton with
	// maxTokens tails of the largest numbers, is about 1.3 MiB.
	maxFrame = 2 << 20
	// maxPool bounds the length of a pool's name.
	maxPool = 64
	// maxTopic bounds the length of a payload's topic.
	maxTopic = 128
	// MaxTag bounds the length of a message's tag.
	MaxTag = 1 << 10
	// maxTokens bounds k.
	maxTokens = kmutex.MaxK
	// maxResting bounds the nodes that a message names.
	maxResting = 1 << 12
)

// Errors of the decoder. Each is wrapped into errFrame.
var (
	errFrame      = errors.New("bad frame")
	errVersion    = errors.New("another wire format")
	errOversized  = errors.New("oversized")
	errTruncated  = errors.New("truncated")
	errTrailing   = errors.New("trailing bytes")
	errNotMinimal = errors.New("number not in its shortest form")
	errRange      = errors.New("value out of range")
	errType       = errors.New("unknown type")
)

type frameType uint8

const (
	frameMessage frameType = 1 + iota
	frameAck
	framePing
	framePong
	frameOffer
	frameChunk
	frameRead
	frameTaken
	frameAbandon
)

// frame is one decoded frame.
type frame struct {
	kind frameType
	// number of the message (message), of the last message received (ack), of a
	// ping (ping, pong) or of a payload (offer, chunk, taken, abandon), or how
	// many bytes were read (read). Only an ack's can be 0.
	number  uint64
	pool    string
	message kmutex.Message

	topic string // offer
	size  int    // offer: of the payload
	data  []byte // chunk: part of what was decoded, until the next frame
	ok    bool   // taken
}

// appendMessage appends the frame of a message with its length to dst. On
// error dst comes back unchanged.
func appendMessage(dst []byte, number uint64, pool string, m *kmutex.Message) ([]byte, error) {
	if number == 0 {
		return dst, fmt.Errorf("%w: number 0", errMessage)
	}
	if pool == "" || len(pool) > maxPool {
		return dst, fmt.Errorf("%w: the pool's name has %d bytes, not 1 to %d", errMessage, len(pool), maxPool)
	}
	if err := checkMessage(m); err != nil {
		return dst, fmt.Errorf("%w: %w", errMessage, err)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, frameByte(frameMessage))
	dst = binary.AppendUvarint(dst, number)
	dst = append(dst, byte(len(pool)))
	dst = append(dst, pool...)
	return closeFrame(appendFields(dst, m), start), nil
}

// appendControl appends a frame that has a number and nothing else, with its
// length.
func appendControl(dst []byte, kind frameType, number uint64) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, frameByte(kind))
	return closeFrame(binary.AppendUvarint(dst, number), start)
}

// appendOffer appends the frame that announces a payload.
func appendOffer(dst []byte, number uint64, size int, topic string) []byte {
	start := len(dst)
	dst = appendControl(dst, frameOffer, number)
	dst = binary.AppendUvarint(dst, uint64(size))
	dst = append(dst, byte(len(topic)))
	return closeFrame(append(dst, topic...), start)
}

// appendChunk appends the frame of a payload's next bytes.
func appendChunk(dst []byte, number uint64, data []byte) []byte {
	start := len(dst)
	return closeFrame(append(appendControl(dst, frameChunk, number), data...), start)
}

// appendTaken appends the frame that ends a payload.
func appendTaken(dst []byte, number uint64, ok bool) []byte {
	start := len(dst)
	result := resultNotTaken
	if ok {
		result = resultTaken
	}
	return closeFrame(append(appendControl(dst, frameTaken, number), result), start)
}

// The results in the frame of a payload that was taken, or was not.
const (
	resultNotTaken byte = iota
	resultTaken
)

// closeFrame sets the length of the frame that begins at start.
func closeFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-lengthSize))
	return dst
}

// frameByte holds version and type.
func frameByte(kind frameType) byte { return protocolVersion<<4 | byte(kind) }

// frameLength returns how long the frame is that follows these lengthSize
// bytes.
func frameLength(b []byte) (int, error) {
	n := binary.BigEndian.Uint32(b)
	if n > maxFrame {
		return 0, fmt.Errorf("%w: %w: %d bytes, at most %d", errFrame, errOversized, n, maxFrame)
	}
	return int(n), nil
}

// wrongVersion says which wire format the other end speaks.
func wrongVersion(theirs byte) error {
	return fmt.Errorf("%w: %d, this gateway speaks %d; install the same version of kgate on all gateways", errVersion, theirs, protocolVersion)
}

// decodeFrame decodes body, a frame without its length, into f. Of body only
// the data of a chunk is kept.
func decodeFrame(body []byte, pools names, f *frame) error {
	c := cursor{rest: body}
	head := c.byte()
	if c.err == nil && head>>4 != protocolVersion {
		c.fail(wrongVersion(head >> 4))
	}
	*f = frame{kind: frameType(head & 0xf)}
	switch f.kind {
	case frameMessage:
		f.number = c.positive()
		f.pool = c.poolName(pools)
		c.fields(&f.message)
	case frameAck:
		f.number = c.uvarint()
	case framePing, framePong, frameRead, frameAbandon:
		f.number = c.positive()
	case frameOffer, frameChunk, frameTaken:
		f.number = c.positive()
		c.payload(f)
	default:
		c.fail(errType)
	}
	if len(c.rest) > 0 {
		c.fail(errTrailing)
	}
	if c.err == nil && f.kind == frameMessage {
		c.err = checkMessage(&f.message)
	}
	if c.err != nil {
		return fmt.Errorf("%w: %w", errFrame, c.err)
	}
	return nil
}

// payload reads what follows a payload's number.
func (c *cursor) payload(f *frame) {
	switch f.kind {
	case frameOffer:
		if f.size = int(c.upTo(maxPayload)); f.size == 0 {
			c.fail(errRange)
		}
		f.topic = string(c.name(maxTopic))
	case frameChunk:
		f.data, c.rest = c.rest, nil
		if c.err == nil && (len(f.data) == 0 || len(f.data) > chunkSize) {
			c.fail(errRange)
		}
	case frameTaken:
		result := c.byte()
		if result > resultTaken {
			c.fail(errRange)
		}
		f.ok = result == resultTaken
	default: // has no more than the number
	}
}
