// Package lookahead is kgate's line with a coordinator that knows more of it than
// its own batch. It answers what late binding would gain from that where k T is
// above a hold: there the baton, which makes one move per delay, is the bottleneck.
// No gateway ships it; docs/adr/0044-sections.md says why.
//
// Requests find their place by path reversal, as in package kmutex, and batches are
// paced by the same ask interval. Then there are two ways:
//
//   - [Sections]: about one place in b is a captain, by a hash. When a captain knows
//     its next place it sends a scout along the line, which reports the places up to
//     the next captain. All captains do so at once. The one that has the baton sends
//     tokens to the places of its section, and then the baton to the next captain.
//     Free tokens go to home and from there after the baton.
//   - [Written]: each place tells home which one comes next. Home knows the whole line,
//     and sends tokens to its places. There is no baton.
//
// What the model leaves out: tokens that rest where they were used, crashes, and
// changes of k or of the members.
package lookahead
