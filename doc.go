// Package kgate lets at most k of something happen at once, over all the processes of a
// cluster: requests into an upstream, jobs, calls to an API. Everybody else waits in one
// fair line across the processes. There is no store; the processes agree among
// themselves.
//
// A program starts a [Node] and gives it the pools that it shares with others. Then
//
//   - [Node.Acquire] takes a slot of a pool, as a semaphore does;
//   - [Node.Middleware] lets an http.Handler serve requests that have a slot;
//   - [Node.Transport] sends requests that have a slot to another server;
//   - [Node.Handler] is the whole reverse proxy, as `kgate serve` runs it.
//
// A node may share its cluster with others of this kind and with `kgate serve`.
//
// # What is promised
//
// At most k slots are held over all nodes, and they go first come, first served. A node has a lease, which a majority of the nodes renews. When the lease
// ends, for instance because the network is split, its slots are lost and others get them.
//
// A program learns of that by [Slot.Lost], and by its context, which ends with the cause
// [ErrLost]. Code that ignores both may run on: "never more than k" holds for code that
// stops. A process that was stopped for longer than its lease can also write
// what it was about to write before it looks: [Node.Transport] asks the lease at each
// write, [Slot.Valid] answers at any time, and with [Slot.Fence] the other side can tell.
//
// # Order of things
//
// [Start] does not wait for other nodes; [Node.Ready] does. Until then, and while the
// node is cut off, requests are refused with [ErrIsolated]. At the end call
// [Node.Shutdown] before that of the http.Server.
package kgate
