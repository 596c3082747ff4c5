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
	errVersion    = errors.New("foreign version")
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

// names keeps one copy of each pool's name, so that decoding a message does
// not allocate. It is bounded, since names come from the other end.
type names map[string]string

const maxNames = 1024

func (n names) get(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(n) < maxNames {
		n[s] = s
	}
	return s
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

// decodeFrame decodes body, a frame without its length, into f. Of body only
// the data of a chunk is kept.
func decodeFrame(body []byte, pools names, f *frame) error {
	c := cursor{rest: body}
	head := c.byte()
	if c.err == nil && head>>4 != protocolVersion {
		c.fail(fmt.Errorf("%w %d, want %d", errVersion, head>>4, protocolVersion))
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

// cursor reads a frame from the front. After the first error it reads zeros.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
		c.rest = nil
	}
}

func (c *cursor) byte() byte {
	if len(c.rest) == 0 {
		c.fail(errTruncated)
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uvarint() uint64 {
	if len(c.rest) > 0 && c.rest[0] < 0x80 {
		v := c.rest[0]
		c.rest = c.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.rest)
	switch {
	case n == 0:
		c.fail(errTruncated)
		return 0
	case n < 0:
		c.fail(errRange)
		return 0
	case c.rest[n-1] == 0:
		c.fail(errNotMinimal)
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// positive reads a number that must not be 0.
func (c *cursor) positive() uint64 {
	v := c.uvarint()
	if v == 0 {
		c.fail(errRange)
	}
	return v
}

// upTo reads a number that must not be above limit.
func (c *cursor) upTo(limit uint64) uint64 {
	v := c.uvarint()
	if v > limit {
		c.fail(errRange)
		return 0
	}
	return v
}

func (c *cursor) poolName(pools names) string {
	b := c.name(maxPool)
	if b == nil {
		return ""
	}
	return pools.get(b)
}

// name reads a name of 1 to limit bytes, which are not copied.
func (c *cursor) name(limit int) []byte {
	n := int(c.byte())
	switch {
	case c.err != nil:
		return nil
	case n == 0 || n > limit:
		c.fail(errRange)
		return nil
	case n > len(c.rest):
		c.fail(errTruncated)
		return nil
	}
	name := c.rest[:n]
	c.rest = c.rest[n:]
	return name
}
