// Package proxy is the HTTP data plane: it routes a request to a pool, has the
// pool's line admit it, and streams it to an upstream and back.
//
// It promises that
//
//   - a request of a pool reaches an upstream only between an Acquire of that
//     pool and the matching release. The slot is held until the upstream's last
//     body byte has been read or the exchange was aborted; for upgrades
//     (WebSocket) until both connections are closed. Whatever happens in
//     between, a panic included, the slot is released exactly once. (An
//     upstream notices an abort only when it looks at its connection; until
//     then it may count one more than the gateways have open.)
//   - nothing of a request's body is read before admission, so a client that
//     sent "Expect: 100-continue" is told to go on only after it;
//   - a client that leaves while it waits gives up its place at once: the
//     context given to Acquire is cancelled. For HTTP/1.1 requests with a body,
//     where net/http cannot see it, see departure.go;
//   - a request that is not admitted gets an answer that says why and when to
//     come back (Refusal).
//
// # Model
//
//	listener -> Server -> Handler (chi: record, guard) -> first matching route
//	  route with a pool:    Admitter.Acquire -> reverse proxy -> release
//	  route without a pool: reverse proxy
//
// The package knows nothing of how admission is decided; whoever wires it
// gives it an Admitter. Parsing is left to net/http and forwarding to
// net/http/httputil, so that nothing of HTTP is parsed by hand here.
//
// # What an upstream sees
//
// The request line and the query as the client sent them (after strip_prefix),
// the Host header unchanged, as HAProxy and Caddy do it, Via, and
// X-Forwarded-For, -Host and -Proto. Everything of that kind that an untrusted
// client sent is removed, and so is every Kgate-* header. Hop-by-hop headers
// end here (RFC 9110, section 7.6.1).
//
// # Sources
//
// RFC 9110 (semantics, Via, Retry-After), RFC 7240 (Prefer), RFC 9457 (problem
// details), W3C Server Timing, draft-ietf-httpapi-ratelimit-headers.
package proxy
