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
//	           late), central (with failover, too), ideal, static, bv95; paper,
//	           token, suzukikasami, naimi, elmp, quorum of the literature
//	handover   the data handover cycle over any of them
//	rounds     the workload of package quorum's protocols: many resources, churn
//	check      every interleaving of a small system, and random larger ones
//	cluster    a whole cluster: processes, leases, a leader, views, an upstream
//	fuzz       clusters under every fault, seed after seed, judged by the upstream
//	ring       how likely it is that a gateway is lost with all its replicas
//	experiment the measurements and the claims; report, plan: pages and answers
//
// To add a protocol, write one Go value for all nodes: Acquire, Release, Cancel, Deliver, Due
// ([protocol.Protocol]). It gets a [protocol.Host] to send messages, set timers and grant
// requests. Wrap a protocol that allows a single request per node, as the literature's do, with
// [protocol.Serial]. If its nodes may crash, come back, join or leave, it implements Detecting,
// Restarting or Moving; check.Explore and check.Fuzz then test it with such changes.
//
// Requests of a run come to nodes (gateways), numbered from 0. What the upstream
// would see is counted by the run itself: more than k requests in the critical
// section are an error, whatever the protocol thinks.
package lab
