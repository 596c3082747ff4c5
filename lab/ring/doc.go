// Package ring answers how likely it is that a catastrophe takes a gateway and all
// its replicas: seed 003, section 5 and figure 6.
//
// Each of n nodes on a Chord ring keeps its state at its p successors. When a
// share of the nodes, chosen at random, is lost at once, nothing is forgotten
// as long as no p+1 neighbours are: [Success] is the probability of that. Whether
// anybody is served then is another question, see 003-fig6 of package experiment.
package ring
