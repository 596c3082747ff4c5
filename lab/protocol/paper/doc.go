// Package paper is the algorithm of V. Reddy, P. Mittal, I. Gupta, "Fair K Mutual Exclusion Algorithm for Peer to Peer
// Systems", ICDCS 2008, as printed but for its misprints (kmutex/DIVERGENCE.md). kgate's early binding, package fairk, leaves
// two things of it out, which are here to be measured:
//
//	3.2 parent := r when a child message or the privilege arrives   Options.Rewrite
//	5   successors that keep a node's state, and take over           Options.Replicas
//
// Of section 5 the model assumes what the paper does. The atomic broadcast is ideal: it happens or does not. It costs a message to each
// successor and an answer from each, and what follows from a change of state, messages as well as the entry into the critical
// section, waits for these answers. The ring is repaired when the first peer is told of a loss; what was on its way to the lost one then
// reaches its successor, without another message. A state is gone when its node and all of its successors are. The model is for
// one loss of many at once: it gives no new copies to those who take over.
package paper
