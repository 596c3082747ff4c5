// Package kmutex is the machine that every gateway runs for every pool: fair
// k-mutual exclusion over one path-reversal tree.
//
// # What it promises
//
// Over all nodes together at most k requests are in the critical section at any
// time, and every request gets in: the requests stand in one line, and the line
// is first come, first served up to the interval at which a node asks for
// places in it. Both hold while messages between living nodes arrive, in any
// order. When a node is lost, the pool changes to a new epoch: every other node is
// frozen and reports ([EventFreeze]), [PlanEpoch] plans the epoch from the reports,
// and each node installs its part ([EventInstall]). Within an epoch no token is
// ever minted. A lost node may go on for a while without knowing that it is lost:
// the tokens that it may use are withheld until the driver knows that it has stopped.
//
// # Model
//
// The package is pure. A [Machine] has no clock, goroutine, lock, random source
// or I/O: an [Event] goes in through Step, [Effects] come out, and the same
// events give the same effects. The driver delivers messages, runs the one
// timer and tells the time; the simulator in lab drives the same code. One
// machine is one pool on one node and is used by one goroutine at a time.
//
// The words: a request asks once for the critical section. The requests of one
// node stand in batches. A batch holds one place in the line; a node can have
// several batches in it. Batches are linked by next. The baton moves along that
// line. The node that holds it is the coordinator and may assign tokens to the
// requests of its batch. When the coordinator binds a request, and to what, is the
// [Binding]'s part. Package coordinator implements two: early, as in the paper,
// and late. With a capital letter, a Request is the message with which a node asks
// for a place in the line, as in the paper.
//
// # Source
//
// V. Reddy, P. Mittal, I. Gupta, "Fair K Mutual Exclusion Algorithm for Peer to
// Peer Systems", ICDCS 2008; its tree is that of M. Naimi, M. Trehel and
// A. Arnold, "A Log (N) Distributed Mutual Exclusion Algorithm Based on Path
// Reversal". Where the printed pseudo-code is wrong, or the code here goes
// another way on purpose, DIVERGENCE.md says so.
//
//	paper, section 3.2                here
//	Request CS                        acquire, pump, ask (line.go)
//	Process Request                   onRequest (line.go)
//	Process Token Locations           onBaton, serve, pass (line.go)
//	Release CS                        release (request.go), coordinator.Early.Free
//	Process Token, Process Child      coordinator.Early.Receive
//	is_coordinator, token_locations   baton, coordinator.Early.tails
//	next                              batch.Next
//	parent                            parent
package kmutex
