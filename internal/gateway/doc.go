// Package gateway drives the pools of one process with real time and real links:
// one [Gateway] has its part of each pool of the cluster (package internal/pool)
// behind one lock.
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
//	transport.Deliver -------------+--> pool lock --> pool.Pool --> effects:
//	ask timer, wake timer --------/                   messages and letters to the links,
//	letters, agreed view                              grants to the waiters, timers
//
// An event takes the pool's lock and goes into package internal/pool, which
// decides; its effects, and what follows from them, are carried out before the lock
// is released (effects.go). Sending never blocks: a message is an append to a link's
// bounded queue, a lone one also a write that does not wait, a letter has a
// goroutine (outbox.go), and a grant is a channel closed. So there is no loop goroutine
// between a request and the machine, and an admission that needs no message and finds
// nobody waiting costs no switch of goroutines. One that finds others waiting has arrived
// when its own goroutine has had the lock; another one gives it its place in line
// (placeSoon), because what leads there needs more stack than the wait.
//
// Files call one way (test/imports). From the top:
//
//	gateway.go                        Gateway: its life, and what the links bring
//	slot.go ticket.go redeem.go       requests, tickets, requests on tickets' slots
//	inspect.go status.go position.go  who waits and holds, the metrics
//	standing.go                       follower: the agreed views, the lease
//	persist.go ticketcall.go          the tickets on disk; of any gateway's tickets
//	pools.go tickets.go               the pools by name; the tickets of one
//	pool.go effects.go                poolDriver: one pool under its lock
//	outbox.go bandwidth.go            what goes to other gateways; the pool's rate
//	upstream.go                       which upstreams this gateway can use
//	claims.go queue.go claim.go       requests that wait or hold a slot; who is next
//	shares.go sharing.go              clients in turn: what each has had; to see it
//	env.go view.go ...                what all pools share, and small parts
//
// Pools and their epochs come from the agreed view. Every epoch begins with the answer of the pool's
// home, so messages come only to gateways that know the pool.
//
// # Standing
//
// A gateway admits as one incarnation, as long as its lease runs
// (membership.Standing). The lease is looked at on every admission and after
// every wake-up. When it ends, everything that the incarnation had is void: who
// waits is refused, each slot in flight is told (admission.Holder), and only when all
// of them have ended does the gateway come back, as another (standing.go).
//
// # Epochs
//
// When a gateway is lost, leaves or returns, or k changes, the view moves the
// pool to a new epoch. Package internal/pool has the states and what leads from one
// to the other. Home also counts the tokens every now and then and asks for a new
// epoch when there are not k.
//
// # Tickets
//
// A ticket over HTTP is a slot under a time to live. It belongs to the gateway
// that took it in, which any other one asks (ticketcall.go). Package internal/pool
// has its state, and copies it to the ring's successors by letter; here it has its
// claim, and goes to the disk. A successor takes it over with the next epoch.
//
// # Inspection
//
// Operators see who waits and who holds a slot, and cancel a request that waits
// (inspect.go), at this gateway; [Gateway.CallFleet] carries their questions to the others.
package gateway
