// Package pace shares out bytes per second: a pool's rate over gateways, by the tokens at each, and a
// gateway's share over its transfers.
//
// # What it promises
//
// A pool has a rate and at most d tokens; each token carries rate/d. A gateway's
// account gains rate/d for each token at the gateway, and the gateway moves no byte
// that the account does not pay for. A token is at one gateway at a time, or on its
// way and at none. So over any time t, all gateways together move at most
//
//	rate*t + d*(burst + chunk)
//
// bytes, for any moves of tokens, and without a message. Burst is the most that an account keeps for
// each token; it gains nothing beyond that. Chunk is the most that a transfer takes at once. Both are
// a few milliseconds of a token's rate (see [Burst]).
//
// Proof: let F be the sum of all accounts at a moment. A token that arrives brings no bytes along, and
// an account that loses a token is cut to the burst of its other tokens. So a move never increases F;
// F grows by at most rate*t in a time t; and it is at most d*burst at any moment. So at most
// rate*t + d*burst is taken in that time. The bytes moved in that time were taken in it or before, and
// each transfer has at most one chunk that it took before. A transfer has a slot, and so a token: there
// are at most d transfers.
//
// # How it is shared
//
// The transfers of a gateway get equal parts: the waiting transfer that has had the least is next
// ([Pacer]). A transfer that waits for something else, such as a slow client, takes nothing, and the
// others get its part.
//
// # Source
//
// Leaky buckets as meters are J. S. Turner's (1986). The order in which waiting transfers
// are served is start-time fair queuing: P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996.
package pace
