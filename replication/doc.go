// Package replication keeps copies of a gateway's tickets at other gateways, so that the tickets,
// their places in line and their slots outlive it.
//
// # What it promises
//
// A change is synced when all p ring successors of the gateway that made it
// have acknowledged it, and its former successors have dropped their replicas. A gateway answers a
// ticket's holder only after the change is synced. So as long as at most p gateways are lost before
// the others have made new replicas, no answer to a holder is ever forgotten, and the gateway that
// takes a ticket over has its newest state.
//
// # Model
//
// The package is pure: no clock, goroutine, lock, random source or I/O. One
// [Table] is one pool at one incarnation of a gateway, its owner. Each change
// increments the table's version. [Replicator] decides which push the owner sends to
// which successor, and up to which version its table is synced; [ReplicaSet] is the other end,
// all replicas that a gateway keeps for others. A [Push] goes from the owner to the
// successor, an [Ack] back.
//
// A push holds the changes since the replica's version. If they are too many, or the table no
// longer knows the deletions among them, the whole table goes, in chunks; the replica shows none of
// them before the last has arrived, so a replica is always one state that the table had.
//
// When gateways are lost, the others send their replicas of them to the home of the pool, and
// [PlanHandOvers] plans the hand-overs: the newest replica of each lost gateway goes to its
// successor, which adds it to its own table ([Table.Absorb]) and notes the lost gateway's name. The
// note is a change like any other: once it is synced, the replicas of the lost gateway are no longer
// needed and the successor answers for the tickets. If the successor is lost in its turn, its
// replicas hold the absorbed tickets, too.
//
// A gateway that starts again is a new incarnation with an empty table. Its own last table and its
// replicas, if it kept them on disk (package disk), are replicas of lost owners like all others.
//
// # Source
//
// Replication to successors follows V. Reddy, P. Mittal, I. Gupta, "Fair K
// Mutual Exclusion Algorithm for Peer to Peer Systems", ICDCS 2008, section 5.
// Where the paper broadcasts a change to the replicas, here a change is pushed
// to each on its own and counts when all have acknowledged it; where the first
// message to a lost node's identifier finds its successor, here the successor is agreed
// in a view; where all replicas are lost, the paper falls back on another
// protocol, and here the tokens that the tickets may have stay withheld until these have expired.
package replication
