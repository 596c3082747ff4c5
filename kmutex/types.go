package kmutex

import "fmt"

// Node is one incarnation of a gateway, as the agreed view numbers it. A
// gateway that comes back after it lost its lease, or restarts, is a new Node.
// Zero is no node.
type Node uint64

// Ticket is one request for the critical section. The driver numbers its
// tickets in order of arrival, so that within one gateway a smaller ticket is
// an older one. Zero is no ticket. A ticket is unique only together with its
// Node.
type Ticket uint64

// Token is one of the k permits of a pool, 0..k-1. Only a ticket that holds a
// token is in the critical section.
type Token int32

// Seat is one place in a token's queue (early binding). Serial numbers the
// seats of one node, from 1; the zero Seat is none.
type Seat struct {
	Node   Node
	Serial uint64
}

// IsZero reports whether s is no seat.
func (s Seat) IsZero() bool { return s == Seat{} }

// String formats s as node.serial.
func (s Seat) String() string {
	if s.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%d.%d", s.Node, s.Serial)
}

// Grant admits Ticket to the critical section: it holds Token until the event
// Release.
type Grant struct {
	Ticket Ticket
	Token  Token
}
