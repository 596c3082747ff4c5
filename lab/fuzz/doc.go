// Package fuzz lets clusters of gateways go through every fault, seed after seed,
// and judges them.
//
// A seed makes a [Scenario]: the size of the cluster, k, the binding, the network,
// and a list of operations: requests, in a third of the scenarios tickets whose
// slots are used by requests at other gateways, and faults at any moment, among them next to
// the delivery of a message of a given kind. [Run] plays it in package cluster.
//
// # What is judged
//
// In both modes, always: the upstream never sees more requests at once than it
// may; what all processes say of views, entries, terms and leases agrees; no machine refuses an event of its own driver; no home is unable to plan an
// epoch; no ticket is forgotten of which its holder has been told, unless more
// gateways are lost than have copies of it; and whenever all members are in one epoch and nothing is owed, the
// invariants of package kmutex hold.
//
// In the liveness mode the faults end twice. First nothing changes any more, and all
// that is broken stays so, but for links whose round trips are too long for leases. Where
// gateways are fully connected that have a majority of the voters, no fewer gateways must
// serve within a bound, and go on, than the largest such set has. That is not asked while
// all tokens are withheld since nobody knows which tickets a lost gateway has granted. Processes that keep
// nothing end only while the others can replace their votes.
// What docs/guarantees.md grants is allowed and nothing else. Then all faults are healed:
// every gateway must be back with a lease, all tokens must be back, every request
// that waits must be served, and a new one at each gateway too, within a bound. In
// the safety mode there is no healing, and worse faults happen.
//
// # A failing seed
//
// [Shrink] takes away what the failure does not need. What is left is told by
// [Scenario.Args]: a command line that plays it again, byte for byte.
package fuzz
