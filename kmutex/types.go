package kmutex

import "fmt"

// Node is one incarnation of a gateway, as the agreed view numbers it. A
// gateway that comes back after it lost its lease, or restarts, is a new Node.
// Zero is no node.
type Node uint64

// Request is the number of one request for the critical section. The driver
// numbers its requests in order of arrival, so within one node a smaller number is
// an older request. Zero is no request. A number is unique only together with its
// Node.
type Request uint64

// FirstAdopted is the smallest number of an adopted request: a request of a lost node that
// another node took over with an [Install]. Adopted requests are not in order of arrival.
const FirstAdopted Request = 1 << 63

// AdoptedRequest returns the number of the i-th request that is adopted as epoch begins,
// 0 <= i < 1<<24. A later epoch's numbers are larger, so a machine can tell a newly adopted
// request from one it already has.
func AdoptedRequest(epoch uint64, i int) Request {
	return FirstAdopted + Request(epoch<<24) + Request(i)
}

// MaxK is the largest k of a pool.
const MaxK = 1 << 16

// Token is one of the permits of a pool. Only a request that holds a token is in
// the critical section. A pool begins with the tokens 0..k-1. A token keeps its
// number for as long as there is a request that holds it, so when k has been
// lowered there may be tokens of k or more; see [Install.Excess].
type Token int32

// Class is tokens that are alike, such as the places at one upstream. A pool whose tokens
// are all alike has no classes. A token in none of a pool's classes is never granted.
type Class struct {
	// K is how many tokens of the class may be in use.
	K int
	// Tokens are the numbers of the class: K of them, or more after k was lowered, while
	// requests may still hold the surplus.
	Tokens TokenSet
}

// NoToken stands for a token that is still to come or to be found.
const NoToken Token = -1

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

// Grant admits Request to the critical section: it holds Token until the event
// Release.
type Grant struct {
	Request Request
	Token   Token
	// Serial tells later uses from earlier ones (the fence): within an epoch no
	// two grants of a pool have the same, and the serials of a token grow. Under
	// late binding all serials of the pool grow.
	Serial uint64
}
