// Package coordinator decides when the coordinator of a pool binds a request, and to which token.
// It implements [kmutex.Binding] twice; the tree, the line and the baton are package kmutex's and
// common to both.
//
// [Early] is the paper's way (V. Reddy, P. Mittal, I. Gupta,
// ICDCS 2008, section 3.2). Each of the k tokens has a queue of its own. The
// coordinator deals requests to the queues round-robin as they come, so a request
// knows its predecessor at once, and a token goes straight from one
// critical section to the next. While critical sections take equally long, this
// is one fair line with the fastest hand-off possible. When they do not, a
// request can wait behind a long critical section while another token idles.
//
// [Late] is ours. A request is bound to a token only when a token is free for it. Free
// tokens rest where they were used; a request there takes one without a message, and
// the coordinator collects tokens when it lacks some. Under load it costs a second
// message delay per hand-off, and stays fair however long the critical sections take.
//
// Both serve tokens in round-robin order from a counter that travels with the
// baton. Like kmutex, the package is pure: no clock, no I/O, no concurrency.
//
//	paper, section 3.2         here
//	token_locations            Early.tails, message field Tails
//	counter_number             counter, message field Counter
//	child                      seat.child
//	Process Child              Early.child
//	Process Token              Early.token
//	Release CS                 Early.Free
package coordinator
