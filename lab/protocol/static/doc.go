// Package static is what users of per-process limits do today: each node has its
// own share of the k tokens and its own line, and they never talk.
package static
