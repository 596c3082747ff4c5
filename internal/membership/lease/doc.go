// Package lease decides how long a gateway may have requests in flight without
// being heard of, and when others may take for granted that it has none.
//
// # What it promises
//
// As long as the clocks' rates are within a tenth of true time, no [Holder]
// believes in its lease at a moment when any [Grantor] calls it expired. This
// holds whatever is lost, delayed, paused or cut off, however often the leader
// changes, and also for leaders that do not know yet that they lead no more.
//
// # Model
//
// The package is pure: no clock, no goroutine, no I/O. A time.Duration is an
// instant of the calling process's monotonic clock, counted from a moment of its
// own; instants of two processes are never compared. A Holder belongs to one
// incarnation of a gateway, a Grantor to one term of one leader. The driver, and
// the simulator likewise, carries renewals from the one to the other.
//
// # The two ends
//
// L is the lease. The holder counts from the moment it *sent* a renewal that was
// granted later: it may have requests in flight for L less a margin of L/10, by
// its own clock. Then the lease has lapsed, for this incarnation for ever: an
// answer that arrives late cannot revive it.
//
// The grantor counts from the moment it *received* the newest renewal that it
// granted, or from the moment it began to lead if that is later: its predecessor
// may have granted anything until then. It waits for 1.1 L plus a bound, by its
// own clock. It only calls members expired that the agreed view has lost: those
// are granted nothing any more, by any leader.
//
// # The arithmetic
//
// It is that of package drift, with the lease as the term: the two ends are at
// least bound/1.1 apart at the worst rates, and 0.2 L + bound apart at true ones.
// That is the time in which the connections that the holder closes when its lease
// ends must be gone.
//
// A machine that is suspended as a whole (a laptop's lid, a migrated virtual
// machine) may stop its monotonic clock. That is a rate of zero, which no margin
// covers. A grantor then only waits longer. For a holder the driver takes a clock
// that goes on (Linux: CLOCK_BOOTTIME), so that the first look at the lease after
// that finds it over; a virtual machine that is frozen may have no such clock.
//
// # A leader that leads no more
//
// A leader that was paused or cut off may be the last to learn that there is
// another one. If it could grant what it receives, it would extend a lease past
// what the new leader waits. Therefore a renewal is granted only after a majority
// of the voters said, in a round that began after the renewal was received, that
// they know of no later term. A voter that says so has not voted in a later term
// yet. Whoever leads a later term was elected by a majority, which has a voter in
// common with that of the round; this one voted after its answer. So the later
// leader was elected, and began to wait, after the renewal was received, and
// what its predecessor granted has run out when it has waited.
//
// One round answers every renewal that was received before it began. A round is
// a message to each voter and back; nothing is written.
package lease
