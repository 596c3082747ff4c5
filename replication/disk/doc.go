// Package disk keeps the tickets of a gateway, its own and its replicas of others,
// in a file below the data directory.
//
// # What it promises
//
// A [Store.Write] that has returned survives the death of the process or the machine; a write that
// is interrupted is on disk as a whole or not at all. So tickets that were written are known again
// after all gateways have been killed at once. A gateway that needs this for a slot writes before it
// answers.
//
// When a write fails, for example on a full disk, nothing written before is lost, and the next write
// includes the failed one's changes.
//
// A damaged file is refused; it is never read as an older one.
//
// # Model
//
// The disk is one more holder of replicas: it gets the changes of each table and each replica since
// the version on disk, so the cost of a write depends on the changes and not on the size of the
// tables. [Store.Pending] gathers changes in memory; [Store.Write] writes them as one record of a
// journal (package journal), so changes should be gathered while a write is under way. The store
// keeps the tables in memory, too, to write the file again when it has grown. [Store.Load] returns
// replicas (package replication); this gateway's own last table is one of them.
package disk
