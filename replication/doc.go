// Package replication keeps what must outlive a gateway: the tickets of the
// ticket API, with their places in line and their slots.
//
// # What it promises
//
// A change is synced when all p ring successors of the gateway that made it
// have acknowledged it, and former ones have dropped their replicas. A gateway answers a ticket's holder only after the
// change is synced. So as long as at most p gateways are lost before the others
// have refilled what went with them, nothing that a holder was told is ever
// missing, and whoever takes over has exactly one state of it: the newest.
//
// # Model
//
// The package is pure: no clock, goroutine, lock, random source or I/O. One
// [Table] is one pool at one incarnation of a gateway, its owner. Each change
// takes the table's version one up. [Replicator] says what the owner sends to
// whom, and up to which version its table is synced; [ReplicaSet] is the other end,
// all replicas that a gateway keeps for others. A [Push] goes from the one to the
// other, an [Ack] back.
//
// A push holds what changed since the version that the replica has. When that is
// too much, or the table no longer knows what was deleted since, the whole table
// goes, in chunks; the replica shows none of them before the last one is there, so
// a replica is always one state that the table had.
//
// When gateways are lost, the others bring the replicas they have to the home of
// the pool, and [PlanHandOvers] plans who takes over what: of each lost gateway the
// newest replica goes to its successor, who takes it into a table of its own
// ([Table.Absorb]) and notes whose it was. That note is a change like any
// other: once it is synced, the replicas of the lost gateway are no longer needed
// and the successor is answerable. When the successor is lost in its turn, its replicas
// hold what it had taken over.
//
// A gateway that starts again is a new incarnation with an empty table. What it
// had kept on disk (package disk), its own last table and its replicas, are
// replicas of lost owners like all others.
//
// # Source
//
// Replication to successors is that of V. Reddy, P. Mittal, I. Gupta, "Fair K
// Mutual Exclusion Algorithm for Peer to Peer Systems", ICDCS 2008, section 5.
// Where the paper broadcasts a change to the replicas, here a change is pushed
// to each on its own and counts when all have acknowledged it; where the first
// message to a lost node's identifier finds its successor, here the successor is agreed
// in a view; where all replicas are lost, the paper falls back on another
// protocol, and here the tokens that the tickets may have stay withheld until these have expired.
package replication
