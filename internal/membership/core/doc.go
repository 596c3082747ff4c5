// Package core is one process's part in the agreement on views: who is in, which pools
// there are, who holds a lease, who leads, who votes. Everything that decides is here.
//
// # Model
//
// The package is pure: no clock, goroutine, lock or I/O, and its random numbers have a seed. [Core.Step]
// takes in one [Event] at an instant, and returns [Effects]: messages to send, records to write,
// gateways to dial, the view, the standing, and when to call it again. The same events at the same
// instants have the same effects, so a run repeats from a seed. A driver has the
// goroutines, sockets, disk and clock, and decides nothing.
//
// A time.Duration is an instant of the process's own clock. It must go on while the machine
// sleeps, and may be a tenth too fast or too slow.
//
// # What the driver promises
//
//   - A connection carries messages in order. Any of them may be lost, and none comes twice. There
//     is at most one connection to a process at a time; the driver says when it begins and ends. Who
//     is at the other end is proven: Received.From is the process that has sent the message.
//   - A record that it calls Written is on disk, and all before it. After a crash, Load is given
//     those and, of the others, as many as follow them without a gap.
//   - Effects are carried out before the next Step, or at least in the order of the Steps.
//
// # What it promises
//
//   - Views of the same number are the same everywhere, and what was agreed on stays.
//   - A [Standing] ends before any view says that its lease is over: package lease has the
//     argument, and below is what a round is here.
//   - As long as a majority of the voters reach each other there is a leader, soon: see the table.
//   - Messages are checked in form and bounded before they are believed; who sends them is a member,
//     and trusted. What contradicts what was agreed on here panics: the process ends, and its lease
//     with it.
//
// # Raft
//
// go.etcd.io/raft lives inside, with what it has for this: pre-votes, a leader that steps down
// without a majority (CheckQuorum), ReadIndex for rounds, learners for who does not vote, joint
// changes, and writes as messages (AsyncStorageWrites), so that a slow disk keeps no heartbeat. Its
// election timers have no seed, so followers never hear a tick; elections are called in
// election.go.
//
// # Why a round is enough for a lease
//
// A renewal is granted when ReadIndex confirms a round that began after the renewal had come: a
// majority of the voters has answered a heartbeat of the round in the leader's term. Raft counts
// the voters by the configuration that the leader has applied when the last answer comes, not when the
// round began. Say that the leader A of term T is confirmed by a majority Q of the configuration C, and that
// B is the next later leader that is ever elected, by a majority of D. What has to hold is that B was
// elected after the renewal had come: then B begins to wait after it, and so do those that follow.
//
//   - If C and D are the same or neighbours (one joint step, or one server, apart), Q and B's majority
//     have a voter in common. Who has voted for B answers no heartbeat of T any more, so that voter
//     answered first, and it answered a question that was asked after the renewal had come.
//   - D is not two changes newer than C: only leaders make changes, and none led between A and B but
//     A, which had not applied more than C.
//   - D is not two changes older than C. A applied each of them before it proposed the next, so it sent
//     the second with word that the first is agreed on. A majority of the configuration between the two
//     has the second, and meets B's majority: so B's log has it as well, or B was not elected. B
//     had it from A, with that word, and raft lets nobody stand who has not applied a change that
//     it knows to be agreed on.
//
// An answer does not wait for the disk. A voter that loses its term with its memory may vote again in
// T or earlier, which makes no leader later than A; in a later term it votes after its answer.
//
// # Times
//
// L is the lease; in what concerns elections, 3 s at most.
//
//	heartbeats, and ticks of the leader        L/15
//	a leader without a majority leads for      L/3 to 2 L/3
//	a leader is silent after                   L/3 + up to L/6, or .6 L and a round trip to a majority since a
//	                                           renewal was sent that it granted
//	a leader takes others out                  while most voters have answered it within L/6
//	a process is gone                          no connection, or at the leader no renewal for a third of
//	                                           the lease; and three dials have failed
//	a server is not alive to its leader        no answer to it for L/3
//	a change of the votes waits                until all that are alive have answered since it was due
//	a leader whose disk hangs leads for        3/4 of a lease
//	from there to asking for votes             L/50 + up to L/20
//	from there to asking again                 L/20 + up to L/5, after two in vain L/5 + up to L/3; at least two
//	                                           elections, as round trips to a majority and its own writes go
//	one that leaves stays until its vote is    10 s at most; 2 s if it reaches nobody who stays, unless all others
//	taken from it                              have left
//	rounds                                     L/20 apart
//	renewals                                   L/6 apart
//
// # Files
//
//	core.go             the events
//	the leader's work   lead.go; judge.go, join.go, voters.go, handover.go; round.go
//	this gateway        found.go, incarnation.go, command.go, warn.go
//	elections           election.go, rollcall.go
//	other processes     peers.go
//	raft                raft.go, stored.go
//	words               event.go, effect.go, message.go, times.go
//
// Source: Ongaro, Ousterhout, "In search of an understandable consensus algorithm", USENIX ATC
// 2014; Ongaro, "Consensus: bridging theory and practice", 2014, 4.3 (joint changes), 6.4
// (reads), 9.6 (pre-votes); go.etcd.io/raft.
package core
