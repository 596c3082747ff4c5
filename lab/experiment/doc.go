// Package experiment has the experiments of the lab: the ones behind the paper's figures, and others that
// the paper lacks.
//
// An [Experiment] says what is compared; [Experiment.Run] of a [Runner] measures it
// over several seeds and returns a [Result]: a [Table] with a 95 % confidence
// interval for every figure, what the paper says of it and whether that agrees
// ([Check]), and one line of findings. [All] lists them.
//
// The same experiment with the same [Options] gives the same table, on every
// machine and however many runs go on at once: a run depends on its seed alone, and
// what the runs found is put together in a fixed order. Seeds are 1, 2, ...; the
// protocols that are compared see the same arrivals and the same holds under the
// same seed.
//
// Sources are named as in the papers' list. 003 is V. Reddy, P. Mittal, I. Gupta,
// "Fair K Mutual Exclusion Algorithm for Peer to Peer Systems", ICDCS 2008. 000 and
// 002 are the paper and thesis that package quorum names, 001 is the paper of package token, 004 the paper
// of packages elmp and handover. Where no source is given, the experiment is ours.
package experiment
