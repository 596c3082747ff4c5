// Package driver runs a core.Core: it has the goroutines, the clock, the sockets and the
// disk, and decides nothing. It is to take the place of what package membership has around
// hashicorp/raft, under the names that package has for its users.
//
// # Goroutines
//
//	loop      takes in events, one after the other, and carries out their effects
//	disk      writes records, as many in one sync as there are
//	gossip    passes on what discovery knows
//	wire      accepts connections; two for each connection: one reads, one writes
//
// The clock is looked at in one place, Cluster.now.
package driver
