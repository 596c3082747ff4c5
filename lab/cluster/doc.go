// Package cluster is a whole cluster of gateways in virtual time: hosts that
// crash, pause and restart, with disks that are slow, hang or lose their newest writes, links that are cut,
// leaders that are deposed without knowing it, clients, and one upstream that counts by itself what
// is in flight.
//
// # Real parts and models
//
// Membership is what kgate ships: see package hosts, which also has the models of disks, connections
// and gossip. So is what a pool does: internal/pool with its tickets and audits,
// kmutex, coordinator and replication, driven by [fairk.Gateway] as package gateway drives them; and
// what a view says to a pool (views.View.ForPool).
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
