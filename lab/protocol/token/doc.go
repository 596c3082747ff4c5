// Package token has the token with a failure detector of S.-H. Park, "A Mutual
// Exclusion Algorithm in Asynchronous Distributed System with Failure Detectors"
// (2013): one token, a queue that travels with it, and a new token after the
// process that had it crashed.
//
// The printed algorithm is not safe: every waiting process that notices a crash
// makes a token (lines 34-39), also while the token is only on its way. Here one
// process, the living one with the lowest number, makes it, after all living ones
// have said that they do not have it and the longest delay has passed. Tokens have
// an epoch; an older one is destroyed.
//
//	lines of figure 3.1                              here
//	 6-8   ask the detector about the holder         the run tells every node of every crash; [protocol.Detecting]
//	 9-12  request                                   protocol.Acquire
//	13-20  a request arrives                         node.request, node.hand
//	21-22  OK names the holder                       node.pointer
//	23-25  the token arrives                         node.token
//	26-33  exit                                      protocol.Release
//	34-42  a crash is noticed                        node.crashed, node.report
//	       (not in the paper: is the token lost?)    node.startPoll, node.settle
//	43-50  the token is lost; request again          node.fresh
//	51-58  time-out: the new token is passed on      node.regenerated
//	       recovery                                  system.Restart, node.inquireHolder
//	equations 3.2 to 3.5                             [Check]
//
// Other repairs, each with a test that fails without it: a request that reaches a process before the
// token does is kept, and a request that arrives at a former holder is forwarded (the paper drops both);
// a process that gives the token away tells waiting processes the new holder (else none monitors it);
// the maker of a token keeps its own request, and processes that do not wait learn of it as well; a
// question about a lost token, and the news of a restart, are ignored if their sender has crashed since;
// a question whose sender crashes before it has all answers is asked again.
//
// # What it survives
//
// Any number of crashes and restarts, if no message takes longer than the bound
// and the detector is perfect. A message that is later than the bound can carry a
// second token: that is why this is no protocol for the Internet. Each time the
// token is passed on, every waiting node is told; so an entry costs as many
// messages as there are nodes in line.
package token
