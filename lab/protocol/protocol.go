package protocol

import (
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/sim"
)

// Request is one request for the critical section. Requests grow in order of
// arrival over the whole run and start at 1.
type Request uint64

// Protocol is mutual exclusion with k tokens over all nodes of a run.
type Protocol interface {
	// Acquire puts a new request of a node in line. It may be granted at once.
	Acquire(node int, t Request)
	// Release ends a granted request.
	Release(node int, t Request)
	// Cancel ends a waiting request; it must not be granted any more.
	Cancel(node int, t Request)
	// Handler takes in the protocol's own messages and timers.
	sim.Handler
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
	Grant(node int, t Request)
	// Found notes that a request has found its place in line after it was
	// forwarded so many times.
	Found(hops int)
}

// Setup is what a protocol is made for.
type Setup struct {
	Nodes, K int
	// Members is how many nodes, the first ones, are in the system from the
	// beginning.
	Members int
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

// Detecting is a protocol whose nodes have a failure detector. It is perfect: it
// tells every living node of every crash, and of nothing else. What the crashed
// node sent may still be on its way then.
type Detecting interface {
	// Down tells a node that another one has crashed.
	Down(node, crashed int)
}

// Restarting is a protocol whose nodes can come back after a crash. All of them
// have been told of the crash by then.
type Restarting interface {
	// Restart begins a new life of a crashed node. It knows what the protocol
	// says is on stable storage, and nothing else.
	Restart(node int)
}

// Moving is a protocol that nodes can join and leave.
type Moving interface {
	// Join lets a node into the system. It knows the node via, which is in.
	Join(node, via int)
	// Leave has a node leave. Its clients ask for nothing any more, but a
	// request may still be in the critical section, or cancelled.
	Leave(node int)
	// In reports whether a node is in the system: from the end of Join to the
	// end of Leave. After that nothing reaches it.
	In(node int) bool
}

// As returns the optional interface T of a protocol, which may be inside [Serial].
func As[T any](p Protocol) (T, bool) {
	if s, ok := p.(*serial); ok {
		p = s.Protocol
	}
	t, ok := p.(T)
	return t, ok
}
