// Package cluster is a whole cluster of gateways in virtual time: hosts that
// crash, pause and restart, links that are cut, a leader that may be deposed
// without knowing it, leases, agreed views, recoveries, clients, and one upstream
// that counts by itself what is in flight.
//
// # What is real and what is a model
//
// What a pool does is what kgate ships: internal/pool with its tickets and audits,
// kmutex, coordinator and replication, driven by [fairk.Gateway]; both ends of the leases
// (internal/membership/lease); the leader's rules (internal/membership/leader). The chord ring gives the
// home.
//
// Raft is a model: one log that all agree on. A leader can append to it only while
// a majority of the voters is with it and in its term; an election takes its
// voters' terms up at one instant; whoever led before and was not among them goes
// on believing that it leads. A candidate needs the votes of a majority to which it
// can open connections and whose logs are no newer than its own, and nobody is
// elected before raft's longest timeout has passed, unless the leader's process is
// gone: so the model is not more alive than raft is. Views, heartbeats, renewals and
// the rounds that confirm them are messages like all others and suffer what the ways
// between hosts do.
//
// What the leader's rules are told is modelled, too. Gossip knows which processes
// run, as long as there is a way by one other host. Dials fail for 300 ms before they
// count. The link between two hosts carries what the gateways say to each other; it
// breaks when nothing has been heard for 7/8 of a lease, or what was sent has not been
// acknowledged for 5/8, and one of its ends must be able to open a connection before it
// is up again. What the pools write to each other beside the
// machines' messages is lost with the link, and its sender is told. Renewals, and the
// questions that confirm them, go over a connection of their own, which is kept as long
// as both processes run and hear each other; votes need a new one.
//
// # The judge
//
// The upstream sees when a request begins and ends in true time, and belongs to
// nobody. A request ends when the upstream is done with it or when its connection
// is closed: by its gateway, or by the kernel of a process that was killed. A
// paused process can close nothing; what it still has open when its lease has run
// out is counted apart, because kgate does not promise it away
// (docs/guarantees.md).
package cluster
