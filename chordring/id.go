package chordring

import (
	"bytes"
	"crypto/sha1" // Chord's identifiers; nothing is protected by them
	"math/bits"
)

// identifier is a point on the identifier circle modulo 2^160, big endian.
type identifier [sha1.Size]byte

// identify returns the identifier of a gateway's name or of a key.
func identify(s string) identifier { return sha1.Sum([]byte(s)) }

// compare orders identifiers as numbers; it returns -1, 0 or 1.
func (a identifier) compare(b identifier) int { return bytes.Compare(a[:], b[:]) }

// plusPower returns a + 2^i modulo 2^160, for 0 <= i < 160.
func (a identifier) plusPower(i int) identifier {
	at := len(a) - 1 - i/8
	carry := uint16(1) << (i % 8)
	for ; at >= 0 && carry > 0; at-- {
		sum := uint16(a[at]) + carry
		a[at] = byte(sum)
		carry = sum >> 8
	}
	return a
}

// minus returns a - b modulo 2^160: the way from b to a, clockwise.
func (a identifier) minus(b identifier) identifier {
	borrow := 0
	for at := len(a) - 1; at >= 0; at-- {
		d := int(a[at]) - int(b[at]) - borrow
		borrow = 0
		if d < 0 {
			d += 256
			borrow = 1
		}
		a[at] = byte(d)
	}
	return a
}

// log2 returns the position of the highest bit that is set, -1 for zero.
func (a identifier) log2() int {
	for at, b := range a {
		if b != 0 {
			return (len(a)-1-at)*8 + bits.Len8(b) - 1
		}
	}
	return -1
}
