// Package pool is one gateway's part of one pool: it runs the machine of package
// kmutex, moves it from epoch to epoch, and manages the pool's tickets.
//
// # What it promises
//
// While gateways are lost, join, leave and k changes, each gateway takes its
// running and waiting tickets from one epoch into the next, and all gateways
// begin an epoch as one plan says. An epoch that cannot begin, because the plan
// fails, or is refused, or a message got lost, asks for another one, at a bounded
// rate, until one begins. The pool's home knows at any moment whose report it
// waits for, and since when ([Pool.Missing]); the cluster has to remove those gateways
// from the view, or the epoch never begins. Home counts the tokens now and
// then and asks for a new epoch when one is lost or doubled.
//
// A ticket lives as long as its holder gives signs of life in time, and ends by one of
//
//	its state                     who may end it
//	waiting                       its holder
//	granted                       its holder; the end of its hold
//	granted, used by a call       that call, by its name; the end of its hold
//	any                           the time to live; at a successor, an epoch in which another request has its token
//
// Its state is shown to nobody before all successors of this gateway, and the disks of all
// that have one, have it ([Tickets.Synced]). A successor gives a ticket that it takes over a whole
// time to live beyond anything that the lost gateway may still have promised, or what that one
// has recorded that it had left: when it left in order ([Pool.HandOver]), or when it had taken the
// ticket over itself and its holder had given no sign since. No slot is given to somebody else
// while its holder may rely on it, whatever the rates of the clocks within the bounds of
// package drift, and whatever the wall clocks show.
//
// # Model
//
// The package is pure: no clock, goroutine, lock, random source or I/O. A method
// takes in one event and returns [Effects]: what to send, which requests to admit, and
// when to call [Pool.Wake]. Times are a monotonic clock's, from any origin. Package
// gateway drives a Pool under one lock with real links and timers, and package
// fairk of the lab with simulated ones.
//
// Gateways exchange messages of the machine, and letters: reports, answers, counts
// of tokens, replicas of tickets. They can be long. When one fails to arrive the driver
// says so ([Pool.Undelivered]), and it is sent again as long as it matters. What a pool
// has to send to itself it takes in at the end of the same event.
//
// # States
//
//	state      meaning
//	Void       the gateway is in no view yet, or its incarnation has ended
//	Frozen     the machine is frozen for the view's epoch; what the disk knows of
//	           lost gateways' tickets has not been loaded, so there is no report yet,
//	           unless this gateway has nothing to report
//	Reporting  the report is on its way to home, or home waits for others'
//	Refused    the epoch cannot begin here; a new one is asked for
//	Installed  the epoch runs here
//
//	event                           from                  to
//	Follow, newer epoch             any                   Frozen, Reporting once loaded
//	Follow, newer, cannot freeze    any                   Refused
//	Loaded                          Frozen                Reporting
//	Take an answer of the epoch     Reporting             Installed
//	  ... the machine refuses it    Reporting             Refused
//	Take the last report, at home   Frozen, Reporting     the same, and home has planned
//	  ... and the plan fails        Frozen, Reporting     Refused
//	End                             any                   Void
//
// A view of an older epoch, and a letter of one, change nothing. A report of a
// newer epoch comes again ([ErrNotYet]). In any state a newer epoch replaces
// the present one. If the present one has begun anywhere, the reports show it (see
// [kmutex.PlanEpoch]).
//
// # Source
//
// The paper (V. Reddy, P. Mittal, I. Gupta, ICDCS 2008) repairs the pointers to a
// lost node one by one; here home plans the whole line from all reports,
// docs/adr/0006. Who drives the package is in docs/adr/0022.
package pool
