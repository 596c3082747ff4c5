package wire

import (
	"encoding/binary"
	"errors"
)

// Errors of decoding. Those of a frame are wrapped into [ErrFrame].
var (
	ErrTruncated  = errors.New("truncated")
	ErrTrailing   = errors.New("trailing bytes")
	ErrNotMinimal = errors.New("number not in its shortest form")
	ErrRange      = errors.New("value out of range")
)

// Cursor reads bytes from the front. After the first error it reads zeros.
type Cursor struct {
	Rest []byte
	Err  error
}

// Fail ends the reading. The first error stays.
func (c *Cursor) Fail(err error) {
	if c.Err == nil {
		c.Err = err
		c.Rest = nil
	}
}

// Byte reads one byte.
func (c *Cursor) Byte() byte {
	if len(c.Rest) == 0 {
		c.Fail(ErrTruncated)
		return 0
	}
	b := c.Rest[0]
	c.Rest = c.Rest[1:]
	return b
}

// Uvarint reads a number in its shortest form.
func (c *Cursor) Uvarint() uint64 {
	if len(c.Rest) > 0 && c.Rest[0] < 0x80 {
		v := c.Rest[0]
		c.Rest = c.Rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.Rest)
	switch {
	case n == 0:
		c.Fail(ErrTruncated)
		return 0
	case n < 0:
		c.Fail(ErrRange)
		return 0
	case c.Rest[n-1] == 0:
		c.Fail(ErrNotMinimal)
		return 0
	}
	c.Rest = c.Rest[n:]
	return v
}

// Positive reads a number that must not be 0.
func (c *Cursor) Positive() uint64 {
	v := c.Uvarint()
	if v == 0 {
		c.Fail(ErrRange)
	}
	return v
}

// UpTo reads a number that must not be above limit.
func (c *Cursor) UpTo(limit uint64) uint64 {
	v := c.Uvarint()
	if v > limit {
		c.Fail(ErrRange)
		return 0
	}
	return v
}

// Count reads how many elements follow; each has one byte at least.
func (c *Cursor) Count(limit int) int {
	n := int(c.UpTo(uint64(limit)))
	if n > len(c.Rest) {
		c.Fail(ErrTruncated)
		return 0
	}
	return n
}

// Name reads a length of one byte and a name of 1 to limit bytes, which are not copied.
func (c *Cursor) Name(limit int) []byte {
	n := c.count1()
	if c.Err == nil && (n == 0 || n > limit) {
		c.Fail(ErrRange)
	}
	if c.Err != nil {
		return nil
	}
	name := c.Rest[:n]
	c.Rest = c.Rest[n:]
	return name
}

// all reads what is left.
func (c *Cursor) all() []byte {
	rest := c.Rest
	c.Rest = nil
	return rest
}

// count1 reads a length of one byte of what follows.
func (c *Cursor) count1() int {
	n := int(c.Byte())
	if n > len(c.Rest) {
		c.Fail(ErrTruncated)
		return 0
	}
	return n
}
