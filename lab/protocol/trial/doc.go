// Package trial has ideas for a better meeting of released tokens and the head of
// the line than the one that ships. They are experiments: none of them ships, and
// none of them can be recovered.
//
// What ships (coordinator.Late): who passes the baton on without a free token tells
// the pool's home where it goes, a released token goes to home, and home sends it
// on to the head. A hand-off takes two delays and four messages (baton, where, twice
// token), on top of the request's way through the tree.
//
//	Direct     a released token first tries where this node sent the baton
//	OnArrival  what shipped before: the new head tells home itself
//	Ledger     the baton runs along the line as fast as it can and writes down who
//	           stands there; the list is left at home, which hands tokens out by
//	           it: the line is the tree's, the waiting is at home. With a hint: a
//	           token tells the node who was last in line, as the parent for its
//	           next request
package trial
