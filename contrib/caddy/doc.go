// Package kgate makes a Caddy a member of a kgate cluster: at most k requests are in
// flight over all its members together, and everybody else waits in one fair line.
//
// It has these modules:
//
//	kgate                                the node of this Caddy (a global option)
//	http.handlers.kgate                  admits requests to a pool (a directive)
//	http.handlers.kgate_admin            the node's status page, API and metrics
//	http.reverse_proxy.transport.kgate   writes to upstreams under a lease only
//
// A request waits in the handler, has its slot while the handlers behind it serve it, and
// gives it back when they have returned and a hijacked connection is closed. Requests
// that wait keep their places when the configuration is reloaded.
package kgate
