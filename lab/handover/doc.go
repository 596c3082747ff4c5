// Package handover has the cycle of S. Hernane, J. Gustedt, M. Benyettou, "Data
// handover on a peer-to-peer system" (Inria RR-8690, 2015), section 4: peers that
// ask for a resource, go on with other work, block until they have the lock, fetch
// the data from its last holder, use it, and release it.
//
//	paper, section 4.2                             here
//	1    dho_ew_request: Req                       cycle.request
//	3a   granted before acquire: T_grant           cycle.Grant
//	3b   dho_ew_acquire: Blocked, T_Wblocked       cycle.acquire
//	5    fetch, T_fetch                            cycle.fetch
//	6    Locked, T_locked                          cycle.fetched
//	7    dho_ew_release                            cycle.release
//	4.3  dho_destroy                               cycle.destroy
//
// The lock is any protocol of the lab: peer to peer with package elmp, client and
// server with package central, where node 0 is the server and no peer.
//
// A peer that leaves with a request in line waits for the token, as section 3.1 of
// the paper demands. It has to fetch the data before it passes the token on: the
// next one fetches from its predecessor.
package handover
