// Package sim is the engine of the lab: one queue of events in virtual time,
// nodes, the links between them, timers, and what can go wrong with each.
//
// # What it promises
//
// The same seed and the same calls give the same run, on every machine: there is
// one random source, no goroutine, no wall clock, and no order that depends on a
// map. Memory does not grow with the length of a run, and an event costs well
// below a microsecond of the engine's own time.
//
// # Model
//
// Instants are time.Duration since the beginning of the run, and they are true
// time: no node can see them. A node has a monotonic clock of its own
// ([Engine.Clock]), which may run fast or slow, and sets its timers by it; its
// wall clock ([Engine.Wall]) may jump too.
//
// A link is one direction between two nodes and behaves as the stream between
// two gateways does (package transport): nothing is lost, doubled or reordered
// between two living incarnations, only late. What a link holds back while it is
// cut goes on when it heals; messages that a node had not yet got onto the wire are lost
// with it, and messages that reach a node after its death are dropped, even if a new
// incarnation runs there. A paused node takes in nothing; its messages and timers wait for it.
//
// Timers of the node [World] belong to what surrounds the nodes: clients,
// upstreams, faults. They are never late.
package sim
