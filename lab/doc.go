// Package lab is a laboratory for k-mutual exclusion: a deterministic simulator
// that drives the machines which kgate ships, beside the protocols it is compared
// with.
//
// [Run] carries out one run: a protocol (package protocol and the folders below
// it), a network, a workload, a seed. The same [Config] gives the same
// [meter.Result], on every machine; only the seed's random source decides. Many
// seeds are many calls, which may be made at once.
//
//	sim        the engine: events in virtual time, nodes, links, faults
//	network    delays        workload   arrivals and holds     meter   measures
//	protocol   the interface; below it fairk (kgate's own machines, early and
//	           late), central, ideal, static, bv95, lookahead, quorum
//	rounds     the workload of those of quorum: many resources, churn
//	check      every interleaving of a small system, and random larger ones
//	fuzz       kgate's machines under every fault, judged by the upstream
//	ring       how likely it is that a gateway is lost with all its replicas
//
// Requests of a run come to nodes (gateways), numbered from 0. What the upstream
// would see is counted by the run itself: more than k requests in the critical
// section are an error, whatever the protocol thinks.
package lab
