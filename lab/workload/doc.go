// Package workload says when requests come to which gateway, how long their
// critical sections take, and how long their clients have patience.
//
// [Closed] is the paper's workload (seed 003, section 4): each client thinks for
// an exponential time, asks, waits, holds, and begins anew; so there are never
// more requests than clients. In [Open] requests come whether or not earlier ones
// have been served, in a Poisson stream or in bursts.
//
// A [Hold] is the distribution of the time in the critical section. The spread of
// holds is told by their SCV, the squared coefficient of variation: variance over
// squared mean; 0 is constant, 1 exponential.
package workload
