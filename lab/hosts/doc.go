// Package hosts is a network of machines in virtual time, with membership as it ships: each process
// has a core ([core.Core]), and what else it runs is an [App].
//
// # Real parts and models
//
// Views, raft, leases, the leader's rules, voters, joins, bootstrap, the roll call and suspicion
// are the core's. Around it are models of what its driver has in production:
//
// A disk writes records one after the other, several at once, each write for a while. When a process ends,
// of what it was writing any number of records is on disk: the first ones, since package journal takes
// a torn record for none. A disk may hang, end its process with a certain write, or be put back as
// it was.
//
// A connection of two processes is what package transport makes of TCP, for whole messages: it takes
// three round trips with long packets to begin, carries messages in order, and ends at both ends, one
// after the other. A process that ends closes its connections. An end that hears nothing
// closes its own after 7/8 of a lease, or after 5/8 if it waits for something. Between two
// processes there is one; which one stays if both dial is decided as in wire.Pair. Who is there
// and no process runs refuses a dial at once. The core's messages are lost with a connection.
// A link between two incarnations loses no message and repeats none, over any number
// of connections; letters are sent once, and their sender is told if they may not have arrived.
//
// Ways are one direction between two hosts: cut, slow, such that no new connection can be opened, or such
// that long packets are lost and all that is behind them on their connection waits.
//
// Clocks run at their own rates. Gossip knows after 50 ms who runs, and after a second who does not,
// as long as there is a way by one other host.
//
// Not here are the frames of package wire: priorities, padding, the bytes of a connection that breaks off
// in the middle of a message. Its own tests simulate these.
//
// # The judge
//
// What processes say is held together: two leaders of one term, entries or views of one number that
// differ, and a gateway that stands although a view says that its lease is over are errors of the
// [World], and so is a core that fails. A core that contradicts itself panics.
//
// The same seed and the same calls give the same run.
package hosts
