// Package drift says how long a promise lasts between two processes whose clocks do
// not run at the same rate.
//
// An owner promises something to a user for a term: a slot for a ticket's time to
// live, or the right to have requests in flight for a lease. The user asks for it
// again and again. Each of the two has its own clock, and the rates of both are
// within a tenth of true time. The user counts from the moment it sent the request
// that was answered, and stops after [Use]. The owner counts from the moment it
// received that request, and gives the promised thing to another user after [Keep].
//
// # The arithmetic
//
// Let the request be sent at true time s and received at r >= s. A clock that is a
// tenth slow shows 0.9 term at s + 0.9 term / 0.9 = s + term at the latest. A clock
// that is a tenth fast shows 1.1 term + bound at r + (1.1 term + bound) / 1.1
// = r + term + bound/1.1 at the earliest. So the user stops bound/1.1 before the
// owner goes on at the worst rates, and 0.2 term + bound before at true ones.
//
// A successor of the owner that does not know when requests were received waits twice, one wait after
// the other: until the owner can receive no more requests, and then for Keep of the longest term that
// the owner may have promised. Each wait is long enough at any allowed rate of the clocks, so their sum
// is. A successor that the owner has told how much of the time is left waits for that time: no part of
// it was counted by a clock more than a tenth fast.
package drift

import "time"

// margin is the inverse of the part of a term by which a clock may be wrong.
const margin = 10

// Use returns for how long the user of a term may rely on it, by its own clock,
// from the sending of the request for it.
func Use(term time.Duration) time.Duration { return term - term/margin }

// Keep returns how long the owner keeps a promise for a term, by its own clock, from the receipt of the
// request. The bound is how long the user's requests, broken off at the end, may take to be gone.
func Keep(term, bound time.Duration) time.Duration { return term + term/margin + bound }

// Term returns the longest term that an owner can promise now if its promise must end after left: Keep
// of the term is at most left. It returns 0 if there is none.
func Term(left, bound time.Duration) time.Duration {
	return max(0, (left-bound)/(margin+1)*margin)
}
