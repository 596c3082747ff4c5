// Package rounds runs the protocols of package quorum as their papers measure
// them: many nodes that share many resources, in rounds.
//
// In each round so many requests are made by random nodes for random resources, each
// holder releases its resource with probability one half, and so many nodes leave
// and join. All of this happens at random instants of the round. What is counted is
// messages, by kind and by the node that takes them in.
//
// A run judges by its own record: a node is in the critical section from its grant until it is told to
// leave or is lost, whatever the protocol's state. fuzz draws runs with every fault that the papers claim
// to survive.
package rounds
