package transport

import "encoding/binary"

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

// count reads how many elements follow; each has one byte at least.
func (c *cursor) count(limit int) int {
	n := int(c.upTo(uint64(limit)))
	if n > len(c.rest) {
		c.fail(errTruncated)
		return 0
	}
	return n
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

func (c *cursor) poolName(pools names) string {
	b := c.name(maxPool)
	if b == nil {
		return ""
	}
	return pools.get(b)
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
