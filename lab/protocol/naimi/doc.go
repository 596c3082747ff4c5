// Package naimi has M. Naimi, M. Trehel and A. Arnold, "A log(N) distributed mutual
// exclusion algorithm based on path reversal", JPDC 34(1), 1996: one token, and a
// tree in which each node points to who it believes asked last. Seed 004 starts
// from it; the paper behind kgate generalizes it to k tokens.
//
//	paper                                            here
//	request to the parent, become the root           forest.Acquire
//	a request at a node that is not the root:        forest.wanted
//	  forward it, parent := requester
//	a request at the root: next := requester, or     forest.wanted, forest.handOver
//	  hand over an unused token
//	exit: the token goes to next                     forest.Release, forest.handOver
//
// A node that crashes or leaves is not part of the algorithm: whoever leaves takes
// the paths through it along, and the token if it has that.
//
// [Trees] makes k of these trees, for the proxies in package bv95.
package naimi
