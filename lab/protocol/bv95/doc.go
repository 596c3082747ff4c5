// Package bv95 has two proxies for the paper's baseline, S. Bulgannawar and N.
// Vaidya, "A Distributed K-Mutual Exclusion Algorithm", ICDCS 1995: k tokens, each
// with a dynamic forest of its own, and a request goes into one of them.
//
// The heuristics by which that algorithm chooses the tree could not be had, so
// these are proxies and are to be called so: here the choice is uniform.
//
//	A   each tree is Naimi, Trehel and Arnold's: a request is forwarded to
//	    the last in line, with path reversal
//	B   each tree is Chang, Singhal and Liu's ("An improved O(log N)
//	    mutual exclusion algorithm", 1990): a node that waits keeps the requests
//	    it gets, and the token carries the line. B is the nearer one to the
//	    figures that the paper quotes; it was chosen knowing them.
package bv95
