// Package disk keeps the tickets of a gateway, its own and its replicas of others,
// in a file below the data directory.
//
// # What it promises
//
// What [Store.Write] has written is there after the process or the machine was
// killed, all of it or, if it was killed meanwhile, none of it. Tickets that the
// gateway had told somebody of are known again when all gateways have been
// killed at once, as far as they had been written; a gateway that wants that of
// a slot writes before it answers.
//
// When a write fails, on a full disk say, nothing that was written before is
// lost, and the next write has everything that this one would have had.
//
// A damaged file is refused; it is never read as an older one.
//
// # Model
//
// The disk is one more place that has replicas: each table and each replica goes
// there as the changes since the version that is there, so that a write costs
// what has changed and not what there is. [Store.Pending] gathers them, in
// memory; [Store.Write] writes them as one record of a journal (package journal), so
// writes should be gathered while one is under way. The store keeps what it has written
// in memory, too, to write the file again when it has grown. What [Store.Load] returns are
// replicas like all others (package replication), this gateway's own last table among them.
package disk
