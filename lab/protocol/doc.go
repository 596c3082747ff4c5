// Package protocol is what the lab's protocols have in common: the interface
// through which a run drives them, and what they may ask of it. Each protocol has
// a folder of its own below this one.
//
// A protocol is one value for all nodes, which are numbered from 0. It must keep
// what a node knows apart from what others know, and learn of other nodes by
// messages only; the tests of each protocol check this. It has no
// clock and no random source but its [Host]'s.
//
// A protocol that allows a node only one request at a time, as protocols of the
// literature do, is wrapped with [Serial]; then it can serve a gateway with many.
package protocol
