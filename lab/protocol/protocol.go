package protocol

import (
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/sim"
)

// Ticket is one request for the critical section. Tickets grow in order of
// arrival over the whole run and start at 1.
type Ticket uint64

// Protocol is mutual exclusion with k tokens over all nodes of a run.
type Protocol interface {
	// Acquire puts a new request of a node in line. It may be granted at once.
	Acquire(node int, t Ticket)
	// Release ends a granted request.
	Release(node int, t Ticket)
	// Cancel ends a waiting request; it must not be granted any more.
	Cancel(node int, t Ticket)
	// Handler takes in the protocol's own messages and timers.
	sim.Handler
}

// Mortal is a protocol that goes on while nodes are lost and join. What it
// survives is for its package to say.
type Mortal interface {
	// Lost tells the protocol that a node has died. What the node knew is gone, and
	// so are its timers and what was on its way to it; its requests are over. Other
	// nodes may use this as a failure detector that is never wrong, as far as the
	// protocol's source has one.
	Lost(node int)
	// Joined tells the protocol that a node is there which was not. It knows
	// nothing.
	Joined(node int)
}

// Host is what a protocol runs on.
type Host interface {
	Now() time.Duration
	Rand() *rand.Rand
	// Send puts a message on its way to another node, never to the same one.
	// The kind is what messages are counted by: a constant string.
	Send(from, to int, kind string, message any)
	// After sets a timer of a node.
	After(node int, d time.Duration, t sim.Timer)
	// Grant lets a waiting request into the critical section.
	Grant(node int, t Ticket)
	// Found notes that a request has found its place in line after it was
	// forwarded so many times.
	Found(hops int)
}

// Setup is what a protocol is made for.
type Setup struct {
	Nodes, K int
	// Delay is the network's mean one-way delay.
	Delay time.Duration
}

// Spec makes a protocol for a run.
type Spec struct {
	// Name is short and unique.
	Name string
	// About is one line for people.
	About string
	// New fails if the protocol cannot work in this setup.
	New func(Host, Setup) (Protocol, error)
}
