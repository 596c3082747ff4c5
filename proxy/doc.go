// Package proxy is the data plane: it routes an HTTP request to a pool, has the
// pool's line admit it, and streams it to an upstream and back. It does the same for
// TCP connections (tcp.go), each of which is one request of its pool.
//
// It promises that
//
//   - a request of a pool reaches an upstream only between an Acquire of that
//     pool and the matching Release. The slot is held until the upstream's last
//     body byte has been read or the exchange was aborted: the connection is
//     closed or, with HTTP/2, the stream is closed on the wire; for upgrades
//     (WebSocket) until both connections are closed. Whatever happens in
//     between, a panic included, the slot is released exactly once. (An
//     upstream notices an abort only when it looks at its connection; until
//     then it may count one more than the gateways have open.)
//   - when the slot is lost, the request is aborted at once, and when the
//     gateway has lost its right to have any requests in flight, not a byte
//     more is sent; see below. A slot held for longer than the pool allows, or
//     idle for longer, is treated like a lost one;
//   - nothing of a request's body is read before admission, so a client that
//     sent "Expect: 100-continue" gets its "100 Continue" only after it;
//   - a client that leaves gives up its place, or its slot, at once: the context
//     given to Acquire is cancelled (package downstream);
//   - no client can make the gateway wait for ever: not for a body that does not come,
//     and not for room to write (deadlines.go);
//   - a request that is not admitted gets an answer that says why and when to
//     come back (admission.Refusal).
//
// # Model
//
//	downstream the client's connection, and what comes over it          package downstream
//	Handler    one snapshot per configuration                           handler.go, snapshot.go
//	exchange   one request: guard, first matching route, then           serve.go, guard.go, target.go, route.go
//	           with a pool: Admitter.Acquire, or Tickets.Redeem         admit.go, tickets.go
//	           forward, while the hold lasts                            forward.go, rewrite.go, hold.go
//	           Release, record                                          access.go, trace.go
//	balancer   chooses the upstream                                     balancer.go, health.go, update.go
//	upstream   connections to it                                        package upstream
//	session    one TCP connection: Acquire, dial                        tcp_session.go
//	joint      copies both ways, for a session or an upgrade            join.go, package relay
//
// A request is an http1.Request. Those that net/http has read, over HTTP/2 or for another server,
// become one in ServeHTTP; where somebody's handler wants net/http's, it is made then.
//
// The package knows nothing of how admission is decided: its Config has an
// Admitter. Routes are matched in order by a scan (route.go), not by a
// router: a router finds the longest prefix, and a path that upstreams may read in
// two ways has to count as both.
//
// # Several upstreams
//
// Of the healthy ones that with the fewest requests in flight is taken (balancer.go).
// A request for which no connection could be made, TLS included, has not been
// sent: it goes to the next upstream, on the same slot; no other request is sent
// to two. Package upstream says what is sent again to the same one.
//
// An upstream is unhealthy after failures in a row, of requests or of its checks
// (health.go). One that fails checks gets nothing, and when all do, requests are
// refused at once: no slot is held for an upstream that may not come back. Where
// there are no checks, all being unhealthy is as good as none: they are tried,
// so that one that is back serves the first request after.
//
// Where upstreams have a k of their own ([Handler.Agree]), the slot says which one the request goes to. If
// no connection to it can be made, the request waits again for the slot of another one (agreed.go), and the
// gateway gets none of that upstream before a check or a connection has shown that it is back (away.go).
//
// # When the right to be in flight ends
//
// A gateway may have requests in flight as long as its lease runs. When it ends,
// each holder is told (admission.Holder): soon after, the connections to the pools' upstreams
// are closed, clients that have seen no answer get 503, and the others' answers are
// aborted. The gateway comes back when all of these requests have ended.
//
// But a process that was stopped wakes up in the middle of what it was doing,
// before anything can tell it. So the right is checked again, at two places:
//
//	the slot       before the request, and each piece of its body or of an
//	               upgraded connection, is handed to a connection (hold.go)
//	the standing   right before each write to a socket (package upstream)
//
// The second is what makes the promise good: there is nothing between the check
// and the system call. The first is for a slot that is lost alone. What remains:
// bytes that the kernel, or one write that was under way, had taken already are
// not called back; until the process wakes its sockets stay open; and over an
// HTTP/2 connection that other requests share, a request whose slot alone was
// lost may still send what had been handed to net/http, and its reset.
//
// # What an upstream sees
//
// The request line and the query as the client sent them (after strip_prefix),
// the Host header unchanged, as HAProxy and Caddy do it, Via, Forwarded, and
// X-Forwarded-For, -Host and -Proto. Everything of that kind that an untrusted
// client sent is removed, and so is every Kgate-* header or trailer, also where another
// byte than a hyphen stands between the words, as servers with CGI variables read it;
// Kgate-Fence is then added for the pools that want it. Hop-by-hop headers end here (RFC
// 9110, section 7.6.1). What a route sets or removes (headeredits.go) comes before
// what the gateway writes, and no client can say it.
//
// # Sources
//
// RFC 9110 (semantics, Via, Retry-After), RFC 7240 (Prefer), RFC 9457 (problem
// details), RFC 7239 (Forwarded), HAProxy's PROXY protocol, W3C Server Timing,
// W3C Trace Context, draft-ietf-httpapi-ratelimit-headers.
package proxy
