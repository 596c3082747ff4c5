// Package views makes the views that all gateways agree on. A [View] is the outcome of a
// prefix of one log: gateways that hold a view of the same number hold the same view. What
// a view promises is in the documentation of package membership.
//
// The package is pure: no clock, goroutine, random source or I/O. Package membership feeds
// it with the entries that raft has committed.
package views
