// Package pace shares out bytes per second: a pool's rate over gateways, by the tokens
// that are with each, and a gateway's share over its transfers.
//
// # What it promises
//
// A pool has a rate and at most d tokens; each token carries rate/d. A gateway's
// account gains that for each token that is with it, and the gateway moves no byte
// that the account does not pay for. A token is with one gateway at a time, or on its
// way and with none. So over any time t, all gateways together move at most
//
//	rate*t + d*(burst + chunk)
//
// bytes, whatever moves, and without a message about it. Burst is the most that an
// account keeps for each token; it gains nothing beyond that. Chunk is the most that a
// transfer takes at once. Both are a few milliseconds of a token's rate (see [Burst]).
//
// Proof: let F be what all accounts have at a moment. A token that arrives brings
// nothing along, and an account that loses one is cut to what it may keep for the others. So F
// never grows by a move; it grows by at most rate*t in a time t; and it is at most
// d*burst at any moment. So at most rate*t + d*burst is taken in that time. What is moved
// in that time was taken in it or before, and what was taken before and not moved is one
// chunk for each transfer. A transfer has a slot, and so a token: there are at most d.
//
// # How it is shared
//
// The transfers of a gateway get equal parts: of those that wait, the one that has had
// the least is next ([Pacer]). One that waits for something else, as for a slow client,
// takes nothing, and the others have its part.
//
// # Source
//
// Leaky buckets as meters are J. S. Turner's (1986). The order in which waiting transfers
// are served is start-time fair queuing: P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996.
package pace
