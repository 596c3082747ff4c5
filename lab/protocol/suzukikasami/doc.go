// Package suzukikasami has I. Suzuki and T. Kasami, "A distributed mutual exclusion
// algorithm", ACM TOCS 3(4), 1985, which seed 001 compares itself with: a request is
// sent to everybody, and the token carries the queue and how many requests of each
// node were served.
//
//	paper                                       here
//	P1   request: RN[i] + 1, REQUEST to all     protocol.Acquire
//	P2   REQUEST arrives at an idle holder      system.Deliver, node.hand
//	exit LN[i] := RN[i], extend Q, pass on      protocol.Release, node.hand
//
// An entry costs N messages, or none if the node has the token. The loss of a node
// is not part of the algorithm: if the holder crashes, everything stops.
package suzukikasami
