package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Errors of checkMessage.
var (
	errKind   = errors.New("unknown kind of message")
	errFields = errors.New("field that this kind of message does not have")
	errNoNode = errors.New("node missing")
	errSeat   = errors.New("seat missing, or without node or serial")
	errEpoch  = errors.New("epoch missing")
)

// field is a set of kmutex.Message's fields; Kind and Epoch are in all.
type field uint32

const (
	fieldOrigin field = 1 << iota
	fieldHops
	fieldSeat
	fieldChild
	fieldToken
	fieldNumber
	fieldCounter
	fieldTails
	fieldFree
	fieldExcess
	fieldSerial
	fieldHolder
	fieldWant
	fieldResting
	fieldTag
	fieldBatch
)

// fieldsOf tells which fields each kind may set.
var fieldsOf = [...]field{
	kmutex.KindRequest: fieldOrigin | fieldBatch | fieldHops | fieldSeat,
	kmutex.KindBaton:   fieldNumber | fieldCounter | fieldTails | fieldFree | fieldExcess | fieldSerial | fieldWant | fieldResting | fieldTag,
	kmutex.KindChild:   fieldSeat | fieldChild,
	kmutex.KindToken:   fieldToken | fieldSeat | fieldSerial | fieldTag,
	kmutex.KindLocate:  fieldNumber | fieldHolder | fieldWant,
	kmutex.KindRecall:  fieldNumber | fieldHolder | fieldWant | fieldResting,
	kmutex.KindTokens:  fieldFree | fieldNumber | fieldWant | fieldHops | fieldResting | fieldSerial | fieldTag,
	kmutex.KindOffer:   fieldFree | fieldBatch | fieldSerial | fieldTag,
}

// fieldsSet tells which fields of m are not zero.
func fieldsSet(m *kmutex.Message) field {
	var set field
	add := func(yes bool, f field) {
		if yes {
			set |= f
		}
	}
	add(m.Origin != 0, fieldOrigin)
	add(m.Hops != 0, fieldHops)
	add(!m.Seat.IsZero(), fieldSeat)
	add(!m.Child.IsZero(), fieldChild)
	add(m.Token != 0, fieldToken)
	add(m.Number != 0, fieldNumber)
	add(m.Counter != 0, fieldCounter)
	add(m.Tails != nil, fieldTails)
	add(m.Free != nil, fieldFree)
	add(m.Excess != nil, fieldExcess)
	add(m.Serial != 0, fieldSerial)
	add(m.Holder != 0, fieldHolder)
	add(m.Want != 0, fieldWant)
	add(len(m.Resting) > 0, fieldResting)
	add(m.Tag != nil, fieldTag)
	add(m.Batch != 0, fieldBatch)
	return set
}

// checkMessage is the one place that says what may be on the wire: the encoder
// refuses to make, and the decoder to accept, anything else. What only the
// machine can judge (k of the pool, who may send what) it leaves to the
// machine.
func checkMessage(m *kmutex.Message) error {
	if !m.Kind.Valid() || int(m.Kind) >= len(fieldsOf) {
		return fmt.Errorf("%w %d", errKind, uint8(m.Kind))
	}
	if extra := fieldsSet(m) &^ fieldsOf[m.Kind]; extra != 0 {
		return fmt.Errorf("%w (%v, set %#x)", errFields, m.Kind, uint32(extra))
	}
	if m.Epoch == 0 {
		return errEpoch
	}
	if m.Tag != nil && (len(m.Tag) == 0 || len(m.Tag) > MaxTag) {
		return fmt.Errorf("%w: a tag of %d bytes", wire.ErrRange, len(m.Tag))
	}
	switch m.Kind {
	case kmutex.KindRequest:
		if m.Origin == 0 {
			return errNoNode
		}
		return checkSeat(m.Seat, true)
	case kmutex.KindBaton:
		return checkBaton(m)
	case kmutex.KindChild:
		return errors.Join(checkSeat(m.Seat, false), checkSeat(m.Child, false))
	case kmutex.KindToken:
		return checkToken(m)
	case kmutex.KindLocate, kmutex.KindRecall:
		if m.Holder == 0 {
			return errNoNode
		}
		return checkDemand(m)
	case kmutex.KindTokens:
		return errors.Join(checkFree(m), checkDemand(m))
	case kmutex.KindOffer:
		return checkFree(m)
	default:
		return errKind
	}
}

// checkSeat wants both parts of a seat, or, if optional, none.
func checkSeat(s kmutex.Seat, optional bool) error {
	if s.IsZero() && optional || s.Node != 0 && s.Serial != 0 {
		return nil
	}
	return errSeat
}

func checkBaton(m *kmutex.Message) error {
	if m.Counter >= maxTokens {
		return fmt.Errorf("%w: counter %d", wire.ErrRange, m.Counter)
	}
	if m.Tails == nil {
		if m.Excess != nil && len(m.Excess) == 0 || len(m.Excess) > maxClasses || slices.ContainsFunc(m.Excess, func(n uint32) bool { return n > maxTokens }) {
			return fmt.Errorf("%w: %d tokens too many", wire.ErrRange, m.Excess)
		}
		return errors.Join(checkFree(m), checkDemand(m))
	}
	if m.Free != nil || m.Excess != nil || m.Serial != 0 || m.Want != 0 || len(m.Resting) > 0 {
		return fmt.Errorf("%w (a baton with tails and free tokens, excess or serial)", errFields)
	}
	if n := len(m.Tails); n == 0 || n > maxTokens {
		return fmt.Errorf("%w: %d tails", wire.ErrRange, n)
	}
	for _, s := range m.Tails {
		// A queue without a tail is for the machine to judge.
		if err := checkSeat(s, true); err != nil {
			return err
		}
	}
	return nil
}

func checkFree(m *kmutex.Message) error {
	if n := len(m.Free); n > maxTokens/64 {
		return fmt.Errorf("%w: %d words of free tokens", wire.ErrRange, n)
	}
	return nil
}

// checkDemand checks what late binding's messages say of tokens that are needed, and
// of where some rest.
func checkDemand(m *kmutex.Message) error {
	if m.Want > maxTokens {
		return fmt.Errorf("%w: %d tokens wanted", wire.ErrRange, m.Want)
	}
	if len(m.Resting) > maxResting {
		return fmt.Errorf("%w: %d nodes where tokens rest", wire.ErrRange, len(m.Resting))
	}
	if slices.Contains(m.Resting, 0) {
		return errNoNode
	}
	return nil
}

func checkToken(m *kmutex.Message) error {
	if m.Token < 0 || m.Token >= maxTokens {
		return fmt.Errorf("%w: token %d", wire.ErrRange, m.Token)
	}
	if m.Seat.IsZero() && m.Serial != 0 {
		return fmt.Errorf("%w (a token without seat and with serial)", errFields)
	}
	return checkSeat(m.Seat, true)
}

// tagged is set in the kind of a message that ends with a tag.
const tagged = 0x80

// Forms of a baton.
const (
	batonLate  = 0
	batonEarly = 1
)

// appendFields appends kind, epoch and the fields of m, which checkMessage has
// accepted.
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
		dst = binary.AppendUvarint(dst, m.Serial)
		dst = appendFree(dst, m.Free)
	default: // checkMessage refuses other kinds
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
		m.Serial = c.Uvarint()
		m.Free = c.free()
	default:
		c.Fail(fmt.Errorf("%w %d", errKind, uint8(m.Kind)))
	}
	if kind&tagged != 0 {
		m.Tag = c.tag()
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
