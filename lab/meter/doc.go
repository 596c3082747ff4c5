// Package meter takes the measures of a run: how long requests waited, in which
// order they came in, how well the tokens were used, and what it cost in messages.
//
// Waits go into a [Histogram] with quantiles to within 1 %; means, maxima and
// counts are exact. Memory does not depend on how many requests there are, only
// on how many wait at once.
//
// The words of the paper (seed 003): the access time, here wait, is the time from
// a request to its critical section; the spread is the largest wait less the mean
// one.
package meter
