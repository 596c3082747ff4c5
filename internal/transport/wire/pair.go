package wire

import (
	"encoding/binary"
	"fmt"
)

// Version of all that gateways say to each other, in the preamble. 8: every
// epoch of a pool begins with home's answer.
const Version = 8

// Hello is what each end says first.
type Hello struct {
	// Name and Boot are those of the process that speaks; Addr is where its peer port is.
	Name, Boot, Addr string
	// To names the gateway that is meant; empty: whoever is there.
	To string
	// Number counts the connections that the process has dialled and accepted, and Saw is the
	// greatest Number of those that it has accepted from the other process. Answers have none.
	Number, Saw uint64
}

// MaxHello bounds an encoded hello, its length included.
const MaxHello = lengthSize + 4*256 + 2*binary.MaxVarintLen64

// Append appends the hello: its length u16, each text behind its length u8, then the numbers.
func (h Hello) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0)
	for _, s := range []string{h.Name, h.Boot, h.Addr, h.To} {
		dst = appendName(dst, s[:min(len(s), 255)])
	}
	return seal(binary.AppendUvarint(binary.AppendUvarint(dst, h.Number), h.Saw), start)
}

// HelloSize returns the length of the hello whose first two bytes are given.
func HelloSize(b []byte) (int, error) {
	n := int(binary.BigEndian.Uint16(b))
	if n > MaxHello-lengthSize {
		return 0, fmt.Errorf("%w: a hello of %d bytes", ErrOversized, n)
	}
	return n, nil
}

// DecodeHello decodes a hello without its length. It must name a process.
func DecodeHello(b []byte) (Hello, error) {
	var h Hello
	c := Cursor{Rest: b}
	for _, s := range []*string{&h.Name, &h.Boot, &h.Addr, &h.To} {
		n := c.count1()
		*s = string(c.Rest[:n])
		c.Rest = c.Rest[n:]
	}
	h.Number, h.Saw = c.Uvarint(), c.Uvarint()
	if len(c.Rest) > 0 {
		c.Fail(ErrTrailing)
	}
	if c.Err == nil && (h.Name == "" || h.Boot == "") {
		c.Fail(ErrRange)
	}
	if c.Err != nil {
		return Hello{}, fmt.Errorf("%w: hello: %w", ErrFrame, c.Err)
	}
	return h, nil
}

// State is the state of a [Pair].
type State uint8

// The states of a pair.
const (
	// Down: there is no connection.
	Down State = iota
	// Dialling: this end has sent its hello and waits for the other one's.
	Dialling
	// Accepted: this end has answered a hello, and nothing has come since.
	Accepted
	// Open: the other end has the connection, too.
	Open
)

// Pair decides which connection between two processes lives. Either end may dial, and both may
// do so at the same time: then the connection of the end with the lower name wins, at both
// ends. An end dials only when it has no connection, so one that the other end has still is
// dead then, and is replaced. A hello that was on its way for long must not do that: the numbers
// tell. The zero value is for the end with the higher name.
//
//	Down ──Dial──> Dialling ──Confirm──> Open
//	  └───Offer──> Accepted ──Confirm──> Open     End: back to Down
type Pair struct {
	// Lower: this end's name is the lower one.
	Lower bool

	state   State
	current uint64 // the number of the connection
	theirs  uint64 // the number that the other end has given it; 0: this end has dialled it
	saw     uint64 // the greatest of those numbers
	boot    string // of the other process; empty while it is not known
	sawBoot string // of the process whose numbers these are
}

// State returns the state.
func (p *Pair) State() State { return p.state }

// Dial begins a connection that this end has dialled, right before its hello, which has the
// number and what Dial returns as Saw. It returns false if there is a connection already.
// Numbers must grow.
func (p *Pair) Dial(number uint64) (saw uint64, ok bool) {
	if p.state != Down {
		return 0, false
	}
	p.state, p.current, p.theirs, p.boot = Dialling, number, 0, ""
	return p.saw, true
}

// Offer judges a connection that the other end has dialled: it returns false if that is to be
// refused, otherwise the number of the connection that it replaces, 0: none. The number is
// this end's for the new one.
func (p *Pair) Offer(number uint64, h Hello) (replaced uint64, ok bool) {
	if p.state != Down && !p.newer(h) {
		return 0, false
	}
	if p.sawBoot != h.Boot {
		p.saw, p.sawBoot = 0, h.Boot
	}
	replaced = p.current
	p.state, p.current, p.theirs, p.boot = Accepted, number, h.Number, h.Boot
	p.saw = max(p.saw, h.Number)
	return replaced, true
}

// newer reports whether the other end has dialled because what this end has is dead.
func (p *Pair) newer(h Hello) bool {
	switch {
	case p.boot != "" && p.boot != h.Boot:
		return true // another process
	case p.theirs != 0:
		return h.Number > p.theirs
	case p.Lower:
		return p.state == Open && h.Saw >= p.current // it knew this one
	default:
		return true // the lower end's wins
	}
}

// Confirm notes that the other end has the connection, too: its hello has come, with its boot,
// or anything behind it. It returns false if the connection has been replaced.
func (p *Pair) Confirm(number uint64, boot string) bool {
	if number != p.current || p.state == Down {
		return false
	}
	p.state, p.boot = Open, boot
	return true
}

// End ends a connection. It returns false if that has been replaced.
func (p *Pair) End(number uint64) bool {
	if number != p.current || p.state == Down {
		return false
	}
	p.state, p.current, p.theirs, p.boot = Down, 0, 0, ""
	return true
}
