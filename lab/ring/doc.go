// Package ring answers how likely it is that a catastrophe takes a gateway and all
// its replicas: seed 003, section 5 and figure 6.
//
// Each of n nodes on a Chord ring keeps its state at its p successors. When a
// share of the nodes, chosen at random, is lost at once, nothing is lost for good
// as long as no p+1 neighbours are: that is the success of the figure. [Success]
// is exact, [Simulate] draws; [Independent] is the variant in which each node is
// lost with a probability of its own.
//
// The paper reads .95 off for 20 % and p = 4, and more than .8 for 50 % and p = 6.
// For 100 nodes the first is .981 and the second .692: it does not hold as
// printed (p = 7 has .849).
package ring
