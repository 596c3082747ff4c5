// Package membership keeps the views that all gateways agree on: who is in, which pools there are, and
// in which epoch each pool is.
//
// A [View] is the outcome of a prefix of one log, which raft replicates. Gateways that hold a view of the
// same number hold the same view. Views are made when gateways come and go and when pools are defined or
// changed; no request ever causes one.
//
// Everything that decides is in package core, which is pure. This package has what that needs:
// goroutines, a clock, connections, a disk. It decides nothing.
//
// # What a view promises
//
//   - A [Member] is one incarnation of a gateway. Its Node is the index of the
//     log entry that let it in: unique for ever. A gateway that restarts, or that
//     lost its standing, is a new Node, and the view that lets the new one in has
//     the old one out.
//   - A member that goes is [Lost]. Until its lease has provably run out (Leased)
//     it may have requests in flight, and each pool lists it in Owed: its tokens
//     are withheld. One that left in order owes nothing. With admission.ReclaimHold a pool
//     is owed for HoldMax more.
//   - The Successor of a lost member is the first ring successor of its name. When the
//     successor is lost, all that it had goes on to its own successor.
//   - A [Pool] is defined once: the first definition wins, whatever others say. So
//     does the first word on the lease.
//   - A pool's Epoch starts at 1 and moves on in every view that takes a member
//     out, that gives the pool tokens back, that changes its k, or that recovers
//     it. A member that went may have held tokens, the baton or a place in the
//     tree, so the line must be rebuilt.
//   - A pool's Home is the Chord owner of its name among the members of the view
//     that began the epoch. It stays for the whole epoch: joins move neither
//     the epoch nor the home. When the home itself goes, the epoch moves on, as
//     for any other member, and the home is chosen again from those left.
//   - A pool's Began is the index of the entry that began the epoch: members with
//     a Node up to it plan the line, later ones join it.
//
// # Standing
//
// A gateway may have requests in flight as long as it has a [Standing]: it is in the view, and the
// leader has confirmed it lately. A gateway that is lost, or whose lease has lapsed, has no standing any
// more; when its owner has aborted all that was in flight it calls [Cluster.Rejoin] and comes back as
// another incarnation. Because it says so itself, nothing is owed for the one before. See package lease.
//
// # The disk
//
// The log, votes and snapshots lie in DataDir and are written through before they count. If that
// fails while running, because the disk is full, the process must end rather than forget a vote:
// [Cluster.Failed]. Its lease then runs out as after any crash.
//
// State in memory is forgotten when the process ends; so each start of a gateway without a data
// directory is another process to the others. If a majority of the voters restart at once without data
// directories, the others cannot know what was agreed: they stay without a leader and say so, until
// they are restarted as well.
//
// # Goroutines and clocks
//
//	loop     takes in events, one after the other, and carries out their effects
//	listen   passes on what discovery knows, and tells it of new incarnations
//	disk     writes records, as many in one sync as there are
//	dial     one for each attempt to reach a gateway, as long as that takes
//
// The clock is looked at for the core in Cluster.now; in stand and tellMissing, where times of the
// timers' clock and the core's meet; and where clock.go and Start read both at the start.
//
// # Layers
//
// Each file calls only those to its right and below.
//
//	Cluster        change.go, cluster.go: what its users call
//	effects        loop.go
//	what it needs  carrier.go: connections; disk.go; clock.go
//	what it shows  state.go, config.go, agreed.go
//
// Source: Ongaro, Ousterhout, "In search of an understandable consensus algorithm", USENIX ATC 2014;
// go.etcd.io/raft.
package membership
