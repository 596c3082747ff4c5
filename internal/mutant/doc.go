// Package mutant plants defects and checks that the tests find them.
//
// A defect is source text and its replacement. The go command compiles it by way of an overlay, so
// production code has no hook for it and no file is written to the source tree. A [Suite] is a table of
// defects beside the tests that have to find them; its test fails for a defect that no test finds, that
// does not compile, or that another check than the named one finds.
//
// A suite is compiled once: each function with a defect gets a copy with the defect, and an environment
// variable chooses the copy to call. Only a change outside a function's body needs a binary of its own.
package mutant
