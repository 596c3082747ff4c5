// Package elmp has the exclusive locks for mobile processes of S. Hernane, J.
// Gustedt, M. Benyettou, "Data handover on a peer-to-peer system" (Inria RR-8690,
// 2015), section 3: the tree and the queue of Naimi and Trehel, kept connected at
// all times, so that nodes can join and leave.
//
//	paper, section 3                               here
//	Requesting 1: walk up, the path becomes Busy   system.Acquire, node.take, node.proceed
//	Requesting 2: exchange places with the root    node.exchange, node.replaced
//	Requesting 3: free the path                    node.release, node.freed
//	Busy, Blocked                                  node.owner
//	Exiting 1-8                                    system.Leave, node.exit, node.left
//	the neighbours' part, 1-5                      node.inherit, node.moved
//	3.2.1 a new process, tree of order m           node.join, node.adopt
//	3.2.1 a new process, lazy                      Options.Lazy
//	Naimi and Trehel: token, next                  node.replaced, system.Release
//
// What differs, and why:
//
//   - In the paper a node that finds the path taken gives back what it has and
//     starts over, without a rule for who goes first. Two that meet can do so for
//     ever, so theorem 1 (liveness) does not hold. Here it waits at the taken node,
//     and the oldest goes first. A wait is always for a node nearer to the root, and
//     the operation that has the path to the root waits for none, so there is no deadlock
//     and no need for numbers as tie breakers (ID, maxID).
//   - Children are not locked. A child that is told of its new parent says so to the
//     old one, so that all it sent there has arrived, and takes what waited there to
//     the new one.
//   - A path is freed from below, one node after the other. Otherwise another
//     operation can change the parent of a node that is not free yet.
//   - The hand-over of an unused token, which section 3 forgets, is Naimi's and
//     Trehel's.
//   - The lazy tree is not rebuilt when it grows too high.
//
// # What it survives
//
// Any joins and leaves, if one node stays and no message takes more than four times
// the mean delay while a newcomer answers an offer. A departure waits until the node's own
// request is served. A crash is not part of the algorithm and stops everybody whose
// path went through the node. Links keep messages in order.
package elmp
