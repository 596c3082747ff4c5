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
// The algorithm does not handle crashes and leaves: a node that leaves takes along the paths through it,
// and the token if it has it.
//
// [Trees] makes k of these trees, for the proxies in package bv95.
package naimi
