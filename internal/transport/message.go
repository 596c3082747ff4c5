package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Errors of messages that cannot be.
var (
	errKind   = errors.New("unknown kind of message")
	errFields = errors.New("field that this kind of message does not have")
	errNoNode = errors.New("node missing")
	errSeat   = errors.New("seat missing")
	errEpoch  = errors.New("epoch missing")
)

// checkMessage says which of the messages that were read are accepted. What only the machine can judge (k of
// the pool, who may send what) it leaves to the machine.
func checkMessage(m *kmutex.Message) error {
	switch {
	case m.Epoch == 0:
		return errEpoch
	case m.Tag != nil && len(m.Tag) == 0:
		return fmt.Errorf("%w: a tag of no bytes", wire.ErrRange)
	case m.Kind == kmutex.KindRequest && m.Origin == 0,
		(m.Kind == kmutex.KindLocate || m.Kind == kmutex.KindRecall) && m.Holder == 0:
		return errNoNode
	case m.Kind == kmutex.KindChild && (m.Seat.IsZero() || m.Child.IsZero()):
		return errSeat
	case m.Kind == kmutex.KindToken && m.Seat.IsZero() && m.Serial != 0:
		return fmt.Errorf("%w (a token without seat and with serial)", errFields)
	}
	return nil
}

// tagged is set in the kind of a message that ends with a tag.
const tagged = 0x80

// Forms of a baton.
const (
	batonLate  = 0
	batonEarly = 1
)

// appendFields appends kind, epoch and the fields of m that its kind has. The machine sets no
// others.
func appendFields(dst []byte, m *kmutex.Message) []byte {
	kind := byte(m.Kind)
	if m.Tag != nil {
		kind |= tagged
	}
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, m.Epoch)
	switch m.Kind {
	case kmutex.KindRequest:
		dst = binary.AppendUvarint(dst, uint64(m.Origin))
		dst = binary.AppendUvarint(dst, m.Batch)
		dst = appendSeat(dst, m.Seat)
		dst = binary.AppendUvarint(dst, uint64(m.Hops))
	case kmutex.KindBaton:
		dst = binary.AppendUvarint(dst, m.Number)
		dst = binary.AppendUvarint(dst, m.Batch)
		dst = binary.AppendUvarint(dst, uint64(m.Counter))
		if m.Tails == nil {
			dst = append(dst, batonLate)
			dst = binary.AppendUvarint(dst, m.Serial)
			dst = appendFree(dst, m.Free)
			dst = binary.AppendUvarint(dst, uint64(len(m.Excess)))
			for _, n := range m.Excess {
				dst = binary.AppendUvarint(dst, uint64(n))
			}
			dst = appendDemand(dst, m)
			break
		}
		dst = append(dst, batonEarly)
		dst = binary.AppendUvarint(dst, uint64(len(m.Tails)))
		for _, s := range m.Tails {
			dst = appendSeat(dst, s)
		}
	case kmutex.KindChild:
		dst = appendSeat(dst, m.Seat)
		dst = appendSeat(dst, m.Child)
	case kmutex.KindToken:
		dst = binary.AppendUvarint(dst, uint64(m.Token))
		dst = appendSeat(dst, m.Seat)
		dst = binary.AppendUvarint(dst, m.Serial)
	case kmutex.KindLocate, kmutex.KindRecall:
		dst = binary.AppendUvarint(dst, m.Number)
		dst = binary.AppendUvarint(dst, uint64(m.Holder))
		dst = appendDemand(dst, m)
	case kmutex.KindTokens:
		dst = binary.AppendUvarint(dst, m.Number)
		dst = binary.AppendUvarint(dst, m.Serial)
		dst = appendFree(dst, m.Free)
		dst = binary.AppendUvarint(dst, uint64(m.Hops))
		dst = appendDemand(dst, m)
	case kmutex.KindOffer:
		dst = binary.AppendUvarint(dst, m.Batch)
		dst = appendOther(dst, m)
		dst = binary.AppendUvarint(dst, m.Serial)
		dst = appendFree(dst, m.Free)
	case kmutex.KindSkip:
		dst = binary.AppendUvarint(dst, m.Batch)
		dst = binary.AppendUvarint(dst, m.Number)
		dst = appendOther(dst, m)
	default: // the machine sends no other kinds
	}
	return appendTag(dst, m.Tag)
}

// appendTag appends a tag and its length; nothing without one.
func appendTag(dst, tag []byte) []byte {
	if tag == nil {
		return dst
	}
	return append(binary.AppendUvarint(dst, uint64(len(tag))), tag...)
}

// appendSeat appends node and serial; for no seat only the node 0.
func appendSeat(dst []byte, s kmutex.Seat) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.Node))
	if s.Node != 0 {
		dst = binary.AppendUvarint(dst, s.Serial)
	}
	return dst
}

func appendFree(dst []byte, s kmutex.TokenSet) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	for _, word := range s {
		dst = binary.AppendUvarint(dst, word)
	}
	return dst
}

func appendOther(dst []byte, m *kmutex.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Origin))
	dst = binary.AppendUvarint(dst, m.Other)
	return binary.AppendUvarint(dst, m.Changes)
}

func appendDemand(dst []byte, m *kmutex.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Want))
	dst = binary.AppendUvarint(dst, uint64(len(m.Resting)))
	for _, n := range m.Resting {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// demand reads what appendDemand wrote.
func (c *cursor) demand(m *kmutex.Message) {
	m.Want = uint32(c.UpTo(maxTokens))
	n := c.Count(maxResting)
	if m.Kind == kmutex.KindLocate && n > 0 {
		c.Fail(errFields)
	}
	for range n {
		m.Resting = append(m.Resting, kmutex.Node(c.Positive()))
	}
}

// other reads what appendOther wrote.
func (c *cursor) other(m *kmutex.Message) {
	m.Origin = kmutex.Node(c.Uvarint())
	m.Other = c.Uvarint()
	m.Changes = c.Uvarint()
}

// fields reads what appendFields wrote.
func (c *cursor) fields(m *kmutex.Message) {
	kind := c.Byte()
	m.Kind = kmutex.Kind(kind &^ tagged)
	m.Epoch = c.Uvarint()
	switch m.Kind {
	case kmutex.KindRequest:
		m.Origin = kmutex.Node(c.Uvarint())
		m.Batch = c.Uvarint()
		m.Seat = c.seat()
		m.Hops = uint32(c.UpTo(math.MaxUint32))
	case kmutex.KindBaton:
		m.Number = c.Uvarint()
		m.Batch = c.Uvarint()
		m.Counter = uint32(c.UpTo(maxTokens - 1))
		switch c.Byte() {
		case batonLate:
			m.Serial = c.Uvarint()
			m.Free = c.free()
			for range c.Count(maxClasses) {
				m.Excess = append(m.Excess, uint32(c.UpTo(maxTokens)))
			}
			c.demand(m)
		case batonEarly:
			m.Tails = c.tails()
		default:
			c.Fail(wire.ErrRange)
		}
	case kmutex.KindChild:
		m.Seat = c.seat()
		m.Child = c.seat()
	case kmutex.KindToken:
		m.Token = kmutex.Token(c.UpTo(maxTokens - 1))
		m.Seat = c.seat()
		m.Serial = c.Uvarint()
	case kmutex.KindLocate, kmutex.KindRecall:
		m.Number = c.Uvarint()
		m.Holder = kmutex.Node(c.Uvarint())
		c.demand(m)
	case kmutex.KindTokens:
		m.Number = c.Uvarint()
		m.Serial = c.Uvarint()
		m.Free = c.free()
		m.Hops = uint32(c.UpTo(math.MaxUint32))
		c.demand(m)
	case kmutex.KindOffer:
		m.Batch = c.Uvarint()
		c.other(m)
		m.Serial = c.Uvarint()
		m.Free = c.free()
	case kmutex.KindSkip:
		m.Batch = c.Uvarint()
		m.Number = c.Uvarint()
		c.other(m)
	default:
		c.Fail(fmt.Errorf("%w %d", errKind, uint8(m.Kind)))
	}
	if kind&tagged != 0 {
		m.Tag = c.tag()
		switch m.Kind {
		case kmutex.KindBaton, kmutex.KindToken, kmutex.KindTokens, kmutex.KindOffer:
		default:
			c.Fail(errFields)
		}
	}
}

func (c *cursor) tag() []byte {
	n := c.Count(MaxTag) // none is for checkMessage to refuse
	tag := append([]byte{}, c.Rest[:n]...)
	c.Rest = c.Rest[n:]
	return tag
}

func (c *cursor) seat() kmutex.Seat {
	node := kmutex.Node(c.Uvarint())
	if node == 0 {
		return kmutex.Seat{}
	}
	return kmutex.Seat{Node: node, Serial: c.Positive()}
}

// tails reads a list of seats. The count is checked against what is there
// before memory is taken for it: a seat has one byte at least.
func (c *cursor) tails() []kmutex.Seat {
	n := c.Count(maxTokens)
	if n == 0 {
		c.Fail(wire.ErrRange)
		return nil
	}
	tails := make([]kmutex.Seat, n)
	for i := range tails {
		tails[i] = c.seat()
	}
	return tails
}

// free reads a set of tokens, nil if empty. Its last word must hold a token.
func (c *cursor) free() kmutex.TokenSet {
	n := c.Count(maxTokens / 64)
	if n == 0 {
		return nil
	}
	set := make(kmutex.TokenSet, n)
	for i := range set {
		set[i] = c.Uvarint()
	}
	if set[n-1] == 0 {
		c.Fail(wire.ErrNotMinimal)
	}
	return set
}
