// Package admin is what a gateway shows on its admin address: health, metrics,
// status as JSON and as a page, and profiles.
//
//	/healthz        200 while the process lives
//	/readyz         200 while it admits requests, else 503 with the reason
//	/metrics        Prometheus metrics
//	/api/v1/status  the document [Status]
//	/               the same for people: one page without script
//	/debug/pprof/   profiles, for clients on this machine only
//
// # What it promises
//
// Everything here only reads: methods other than GET and HEAD are refused.
// Reading needs no secret, so the admin address belongs on loopback or on a
// network of operators. Nothing shown is a secret, but profiles may hold parts
// of requests, so they are for loopback clients alone.
//
// A web page that somebody visits must not read the admin address through the
// visitor's browser. No response allows other origins, and on a loopback
// address a request must name it as localhost or as an IP address, which a
// page under a name of its own (DNS rebinding) cannot do.
//
// What names, addresses and reasons say is escaped; the page runs no script and
// loads nothing.
package admin
