// Package network has the delays of the lab's networks.
//
// A [Model] gives the one-way delay of each message between two nodes. Models
// that come from measurement or geometry hold a matrix, made once; a delay is
// then a look-up. All times are one-way: half of the round trip.
//
//	Constant      every message takes the same time (the paper's LAN: 1 s)
//	Jitter        a constant and an exponential part, anew for each message
//	Uniform       any time between two bounds, anew for each message
//	Matrix        each pair has its own delay: ParseKing, Clustered
//
// The paper takes its WAN from the King data set (K. Gummadi, S. Saroiu, S.
// Gribble, "King: Estimating latency between arbitrary Internet end hosts",
// IMW 2002) with round trips of 182 ms in the mean and 800 ms at most. [ParseKing]
// reads such a set in p2psim's format and scales it to these two figures: call it
// King scaled, it is not the paper's data. Without a file there is [Clustered],
// which makes up a plane with four clusters of nodes and has the same two figures.
package network
