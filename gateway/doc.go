// Package gateway drives the pure machines of one process with real time and
// real links: one [Gateway] holds one pool of the cluster per name, and each
// pool one [kmutex.Machine] behind one lock.
//
// # What it promises
//
// [Gateway.Acquire] waits in the pool's line and returns a [Slot]; its Release
// gives the slot back, exactly once however often it is called. A caller whose
// context ends leaves the line at once, and a grant that meets such a caller goes
// on to the next in line: it is never lost. While a slot is held, one of the
// pool's k tokens is at this gateway for it.
//
// # How it works
//
//	Acquire, Release, ctx done ---\
//	transport.Deliver -------------+--> pool lock --> Machine.Step --> effects:
//	ask timer --------------------/                   messages to the links,
//	agreed view (Follow) -------> install             grants to the waiters
//
// An event takes the pool's lock, steps the machine and carries its effects out
// before it lets go: sending never blocks (it is an append to a link's bounded
// queue), and a grant is a channel closed. So there is no loop goroutine and no
// queue of events between a request and the machine, and an admission that needs
// no message costs no switch of goroutines.
//
// Pools and their epochs come from the agreed view. A message that arrives
// before the view which explains it is kept for a while, within bounds.
package gateway
