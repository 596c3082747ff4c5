// Package netns runs real gateways in network namespaces of their own, and cuts
// the network between them.
//
// # The network
//
// A [Network] has one namespace per gateway, one for two bridges, and one,
// outside, for the clients and the upstream:
//
//	            peers 10.77.1.0/24
//	gateway 1 ─┬───────────────────┬─ gateway n
//	           └───────────────────┘
//	           clients 10.77.2.0/24 ── outside: clients, upstream
//
// Gateways talk to each other on the first network only, and faults are on the
// first only, so clients reach every gateway, and every gateway its upstream,
// whatever the gateways can say to each other. A fault is a rule of nft in the
// namespace of the gateway that does not hear any more. The test process itself
// listens and dials in the namespace outside, by a thread that has entered it.
//
// With [NewDelayed] a relay takes the place of the gateways' bridge: each has a
// TUN device, and every packet arrives after a delay.
//
// The judge of k is the upstream, here as in test/cluster, whose harness starts
// the gateways.
//
// Nothing outside the namespaces is touched. They end with the test; those of a
// run that was killed are removed by the next. Linux, root, ip and nft are needed
// (Debian: iproute2, nftables).
package netns
