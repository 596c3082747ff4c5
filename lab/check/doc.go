// Package check judges the lab's protocols: it looks for a schedule under which one
// lets too many into the critical section, or somebody in never.
//
// [Explore] visits every state that a small system can reach: every order of
// requests, releases, messages, timers, crashes and what the failure detectors
// say. It also proves, within its bounds, that everybody can still be served from
// every state that was reached. [Fuzz] plays larger systems with random delays,
// losses, departures and arrivals, one seed after the other.
//
// What a protocol's source does not claim to survive is left out of its [Scope] or
// [Claims], and is a row in docs/lab.md instead.
package check
