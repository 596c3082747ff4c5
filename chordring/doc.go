// Package chordring computes a Chord ring over an agreed set of gateways.
//
// A [Ring] is immutable and depends only on the names that it is made of: gateways with the same
// view have the same ring, and get the same answer from every method below. The package has no
// clock, lock, goroutine, random source or I/O.
//
// # What differs from a Chord network
//
// In Chord a node knows O(log N) others and finds the owner of a key by asking
// from finger to finger. Here serf gives every gateway the whole membership,
// so [Ring.Owner] is a binary search and a look-up costs one message: straight
// to the owner. [Ring.Route] still yields the path that Chord would take, for the lab's protocols
// that use such paths.
//
// Chord repairs its pointers while nodes come and go (stabilize, notify,
// fix_fingers). Zave, "Reasoning about identifier spaces: how to make Chord
// correct" (IEEE TSE 2017), shows that this protocol as published can lose its
// ring: cycles fall apart or fail to include live nodes. None of those
// anomalies can occur here, because nothing is repaired step by step: a ring
// is built whole from a view that all gateways agreed on, and a change of
// membership is another view with another ring.
//
// # Source
//
// Stoica, Morris, Liben-Nowell, Karger, Kaashoek, Dabek, Balakrishnan: "Chord:
// a scalable peer-to-peer lookup protocol for Internet applications",
// IEEE/ACM Transactions on Networking 11(1), 2003.
//
//	section                                  here
//	IV-B consistent hashing, SHA-1, m = 160  Ring.Owner
//	IV-C successor of a node                 Ring.Successors(name, 1)
//	IV-D finger table (table I, figure 5)    Ring.Route
//	V-A  successor lists, replicas           Ring.Successors(name, p)
package chordring
