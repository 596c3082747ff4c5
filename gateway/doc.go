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
//
// # Standing
//
// A gateway admits as one incarnation, as long as its lease runs
// (membership.Standing). The lease is looked at on every admission and after
// every wake-up. When it ends, everything that the incarnation had is void: who
// waits is refused, each slot in flight is told (Slot.OnLost), and only when all
// of them have ended does the gateway come back, as another (standing.go).
//
// # Epochs
//
// When a gateway is lost, leaves or returns, or k changes, the view moves the
// pool to a new epoch. Each gateway freezes its machine and reports to the pool's
// home; home plans with kmutex.Reform, and each enters with its part of the plan
// (reform.go, exchange.go). Home also counts the tokens every now and then and has
// the epoch formed anew when there are not k (audit.go).
//
// # Tickets
//
// A ticket over HTTP is a slot under a time to live. It belongs to the gateway
// that took it in, which any other one asks (desk.go, ticket.go, ticketcall.go);
// its record is copied to the ring's successors (replicate.go) and to the disk
// (persist.go), and an heir takes it over with the next epoch.
//
// # Who is there
//
// People see who waits and who holds what, and send somebody away (line.go), at
// this gateway; [Gateway.CallFleet] carries their questions to the others.
package gateway
