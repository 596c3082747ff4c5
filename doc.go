// Package kgate lets at most k of something happen at once, over all the processes of a
// cluster: requests into an upstream, jobs, calls to an API. Everybody else waits in one
// fair line across the processes. There is no store; the processes agree among
// themselves.
//
// A program starts a [Node] and gives it the pools that it shares with others. Then
//
//   - [Node.Do] and [Node.Acquire] take a slot of a pool, as a semaphore does;
//   - [Node.Middleware] lets an http.Handler serve requests that have a slot;
//   - [Node.Transport] sends requests that have a slot to another server;
//   - [Node.Limit] has each request of an http.Client wait for a slot;
//   - [Node.RequestTicket] takes a place in line for who comes back later.
//
// A node may share its cluster with others of this kind and with `kgate serve`. Package gateway
// has the reverse proxy, the page for operators, metrics and traces. Of the other packages of this
// module only gateway and client are for programs of others.
//
// # What is promised
//
// At most k slots are held over all nodes, and they go first come, first served. A node has a lease, which a majority of the nodes renews. When the lease
// ends, for instance because the network is split, its slots are lost and others get them.
//
// A program learns of that by its context, which ends with the cause [ErrLost], and by
// [Slot.Lost]. Code that ignores both may run on: "never more than k" holds for code that
// stops. A process that was stopped for longer than its lease can also write
// what it was about to write before it looks: [Node.Transport] asks the lease at each
// write, [Slot.Valid] answers at any time, and with [Slot.Fence] the other side can tell.
//
// # Order of things
//
// [Start] does not wait for other nodes; Acquire does, and [Node.Ready]. Until then, and while the
// node is cut off, Middleware refuses requests. At the end call [Node.Shutdown] before that of the
// http.Server.
package kgate
