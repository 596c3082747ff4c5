// Package mutant plants defects and looks whether the tests find them: a check
// that cannot fail is none.
//
// A defect is source text and what it is changed into. The go command compiles
// it by way of an overlay, so production code has no hook for it and no file is
// written to the source tree. A table of defects beside the tests that have to
// find them is a [Suite]; its test fails for a defect that passes, that does not
// compile, or that something else than the named check has found.
//
// A suite is compiled once: each function with a defect gets a copy that has it,
// and an environment variable chooses the copy that is called. Only a change
// outside a function's body needs a binary of its own.
package mutant
