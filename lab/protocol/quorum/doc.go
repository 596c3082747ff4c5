// Package quorum is mutual exclusion by votes of replicas that lie on a Chord ring:
// Sigma, End-to-End and Non-End-to-End.
//
// # Source
//
//	000  M. Muhammad, A. Cheema, I. Gupta, "Efficient Mutual Exclusion in
//	     Peer-to-Peer Systems", 2005
//	002  M. Muhammad, the thesis of the same title, University of Illinois, 2005
//
// Sigma is S. Lin, Q. Lian, M. Chen, Z. Zhang, "A Practical Distributed Mutual
// Exclusion Protocol in Dynamic Peer-to-Peer Systems", IPTPS 2004, as these two
// describe it. Of the Pastry overlay below them only the hops matter here; routes
// are a Chord look-up's ([chordring.Ring.Route]).
//
// # The protocols
//
// A resource has M replicas, each at the node that owns its key. Who wants the
// resource asks all of them and enters with a majority of votes.
//
//	Sigma           the replicas keep the line; waiting clients ask again when
//	                their turn should have come (informed back-off)
//	End-to-End      the owner keeps the line, and hands it over with the token. The
//	                nodes on the routes from the owner to the replicas know it and
//	                send it whatever request comes by
//	Non-End-to-End  as Sigma, but a request waits at the first node that is on
//	                another one's route; a RELEASE collects these partial lines
//
// What the papers say, and where it is:
//
//	REQUEST to all responsible replicas           Fleet.Acquire, ask
//	intermediate nodes look up their replica list endToEndRoute, nonEndToEndRoute
//	the replica votes, RESPONSE or GRANTREQ       wanted, respond
//	a majority: IAMWINNER                         decide, own, announce, won
//	nobody has enough: YIELD (RELEASE + REQUEST)  giveUp, wanted
//	ENQUEUE                                       enqueued
//	TOKEN with the rest of the line               handOver, handed
//	RELEASE along the Next pointers               Fleet.Release, clearAll, endToEndRoute
//	partial lines are merged at the replica       nonEndToEndRoute, replica
//	Next and Previous detect lost nodes           Fleet.Lost, repair, clear
//	random reset of a replica                     Fleet.Reset, Fleet.Joined
//	lease; informed back-off rebuilds the replica renew, expire, askAgain
//
// # What had to be closed
//
// As printed, the protocols let two nodes in or stop. Each line is a test
// that fails without it.
//
//	a node enters when "each replica grants", or with a majority: a majority
//	a RELEASE goes with the TOKEN, and a third node can win in between: none goes.
//	   The new owner tells the first one, to whom all routes lead, or with
//	   [Options.Announce] all replicas
//	a loser that comes before any winner is in no line: the replica keeps it until
//	   IAMWINNER comes, and sends it to the owner then
//	ENQUEUE reaches a former owner: it passes it on to its successor;
//	   the last owner answers RETRY
//	up to M ENQUEUEs for one request: the owner takes one, a former owner passes one on
//	intermediate nodes name a holder before the vote: that is a belief, no vote
//	replicas prefer different requests: YIELD, and in Non-End-to-End to all replicas,
//	   because a request in a partial line is not known to the replica
//	YIELD with a new timestamp starves: it keeps the old one
//	a vote that was sent before its YIELD arrives after it: votes repeat the round of
//	   the request, and votes of an earlier round are void
//	IAMWINNER takes a vote away that another client has counted: votes count only if
//	   all replicas gave them knowing of the same last ownership
//	a replica that was reset votes twice: it abstains for a lease. Broken is how
//	   likely two owners are otherwise
//	requests of lost nodes get the vote one after the other, for a lease each: a request
//	   that was not sent again for a lease does not get it
//
// # Faults survived
//
// Links keep their messages in order, as package sim's do.
//
// With a lease: the loss of any node, owner, replica or on a route; joins; resets of
// any replicas. What is lost with its owner, the line or a partial line, comes back
// when the clients ask again. A lease must be far longer than a message and its route
// take; with unbounded delays two owners are possible. Without a lease no loss is
// survived: the node that is responsible next votes again, and a second owner gets in.
// Not survived: the loss of so many replicas, again and again within a lease, that no
// majority votes; then nobody gets in. The
// copies of the line at waiting nodes (000, V-A) are not built: asking again does
// their work.
package quorum
