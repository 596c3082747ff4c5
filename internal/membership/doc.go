// Package membership keeps the views that all gateways agree on: who is in,
// which pools there are, and in which epoch each pool is.
//
// A [View] is the outcome of a prefix of one log, which hashicorp/raft
// replicates. Gateways that hold a view of the same number hold the same view.
// Views are made when gateways come and go and when pools are defined or
// changed; no request ever causes one.
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
// # How a cluster starts
//
// A gateway that expects nobody and joins nobody is a cluster of one at once.
// With an expected number n > 1, gateways wait until gossip shows n of them
// alive with that number, ask each other directly whether all see the same set
// and none has a cluster yet, and then start one and the same configuration.
// The cluster's id is a hash of that configuration. It opens every raft
// connection together with the server that the dialer means, so that neither
// another cluster nor another incarnation at the same address can vote. Any
// other gateway waits to be let in by the leader. State on disk is never
// discarded.
//
// # Standing
//
// A gateway may have requests in flight as long as it has a [Standing]: it is in
// the view, and the leader has confirmed it lately. It renews its lease with the
// leader six times per lease, by a direct call; nothing is written. Package lease
// has the two ends as pure machines, the argument why they never contradict each
// other, and the arithmetic. A gateway that is lost, or whose lease has lapsed,
// has no standing any more; when its owner has aborted all that was in flight
// it calls [Cluster.Rejoin] and comes back as another incarnation. Because it
// says so itself, nothing is owed for the one before.
//
// # The leader's loops
//
// The leader watches what discovery reports. A gateway that is alive and not
// in the view is asked for its identity over the control stream, and whether
// long packets pass between it and the peer ports of all members; then it becomes a non-voting raft server
// and a member. One that has left is removed. There are at most 5 voters and
// an odd number of them: 1 for up to 2 members, 3 for up to 4, 5 from there on. A
// pair has one voter on purpose: with two, the loss of either would stop both.
// But once there are three, no loss makes them fewer: see leader.NextStep. A lost
// voter keeps its vote until another gateway takes it, after SwapAfter, or people take
// it away. No change is made that the living voters could not commit.
//
// Whom to suspend, whose lease to call expired, whom to let in and when to hand the
// lead over is decided by package leader, which has the table of faults, rules and
// bounds. This package tells it what there is to know: renewals and the complaints
// that come with them, gossip, and dials of members whose link is down or that are
// silent. Every gateway collects failed dials all the time, so that a new leader can
// act at once. All suspicions of a moment go into one command, so that they cost one
// epoch.
//
// # Elections
//
// Raft's own timeouts follow from the lease, so that long round trips cost nothing.
// Elections do not wait for them: voters that know their leader to be gone, or have
// none, ask each other, and if a majority says so one of them calls an election at
// once. See election.go.
//
// # The disk
//
// The log, votes and snapshots lie in DataDir and are written through before
// they count. If that fails while running, because the disk is full, raft ends
// the process rather than forget a vote: its lease then runs out as after any
// crash.
//
// # Without a data directory
//
// State in memory forgets votes when the process ends; so each start of such a
// gateway is a new raft server. If a majority of the voters restart at once
// without data directories, the others cannot know what was agreed: they stay
// without a leader and say so, until they are restarted as well.
//
// # Layers
//
// Each layer calls only those below it; within a layer, files call those to their right.
//
//	Cluster             change.go, cluster.go: what its users call; control.go: what other gateways ask
//	the leader's work   lead.go, join.go, bootstrap.go; suspect.go; propose.go
//	raft's messages     rpc.go, overlap.go: which of them raft gets
//	leases, elections   renew.go, leaseserver.go; election.go
//	other gateways      leaderwatch.go, prober.go, peers.go
//	this gateway        incarnation.go; rafttransport.go, node.go, stream.go, raftlog.go
//	what it keeps       rollcall.go, disk.go, storage.go, addresses.go
//	what is agreed on   machine.go
//
// The packages views (what is agreed on, and what each entry of the log changes), leader and
// lease, below all of it, are pure.
//
// Source: Ongaro, Ousterhout, "In search of an understandable consensus
// algorithm", USENIX ATC 2014; github.com/hashicorp/raft.
package membership
