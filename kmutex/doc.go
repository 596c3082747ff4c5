// Package kmutex is the machine that every gateway runs for every pool: fair
// k-mutual exclusion over one path-reversal tree.
//
// # What it promises
//
// Over all nodes together at most k tickets are in the critical section at any
// time, and every ticket gets in: the tickets stand in one line, and the line
// is first come, first served up to the interval at which a node asks for
// places in it. Both hold while messages between living nodes arrive, in any
// order. What a lost node does to a pool is repaired by a new epoch, which
// [Reform] plans from the reports of all others, and which begins with
// [EventFreeze] and [EventInstall]; within one epoch nothing is ever minted. A
// lost node may go on for a while without knowing that it is lost: what it may
// run is withheld until the driver knows that it has stopped.
//
// # Model
//
// The package is pure. A [Machine] has no clock, goroutine, lock, random source
// or I/O: an [Event] goes in through Step, [Effects] come out, and the same
// events give the same effects. The driver delivers messages, runs the one
// timer and tells the time; the simulator in lab drives the same code. One
// machine is one pool on one node and is used by one goroutine at a time.
//
// The words: a ticket is one request for the critical section. Tickets of one
// node stand in turns; a turn holds one place in the line, and a node has one
// turn after another in it. Turns are linked by next. The baton goes along that
// line; who holds it is the coordinator and may assign tokens to the tickets of
// its turn. When and to what the coordinator ties a ticket is the [Binding],
// implemented in package coordinator: early, as in the paper, or late.
//
// # Source
//
// V. Reddy, P. Mittal, I. Gupta, "Fair K Mutual Exclusion Algorithm for Peer to
// Peer Systems", ICDCS 2008; its tree is that of M. Naimi, M. Trehel and
// A. Arnold, "A Log (N) Distributed Mutual Exclusion Algorithm Based on Path
// Reversal". Where the printed pseudo-code is wrong, or the code here goes
// another way on purpose, docs/divergence.md says so.
//
//	paper, section 3.2                here
//	Request CS                        acquire, pump, ask (line.go)
//	Process Request                   onRequest (line.go)
//	Process Token Locations           onBaton, serve, pass (line.go)
//	Release CS                        release (machine.go), coordinator.Early.Free
//	Process Token, Process Child      coordinator.Early.Receive
//	is_coordinator, token_locations   baton, coordinator.Early.tails
//	next                              turn.Next
//	parent                            parent
package kmutex
