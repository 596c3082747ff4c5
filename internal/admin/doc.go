// Package admin serves a gateway's admin address. It shows health, metrics, profiles, and
// the status as JSON and as a page. It changes pools and members. It also has the ticket
// API, which the client address serves, too, for pools that allow it.
//
//	/healthz        200 while the process lives
//	/readyz         200 while it admits requests, else 503 with the reason
//	/metrics        Prometheus metrics
//	/api/v1/status  the document [Status]
//	/api/v1/line    the document [Line]: the requests and tickets that wait or hold slots in a pool
//	/api/v1/why     the document why: why a ticket, or a request by its trace, waits
//	/api/v1/openapi.json
//	/               the same for people: a page, and /events to keep it up to date
//	/debug/line     the line as text
//	/debug/pprof/   profiles, for clients on this machine only
//
//	DELETE /api/v1/line/ID             takes a request out of the line
//	POST /api/v1/pools/NAME            {k, was}, or a rate: for the whole cluster
//	POST /api/v1/drain                 refuse new requests, finish the rest
//	POST /api/v1/leave                 shut down in order, as SIGTERM does
//	POST /api/v1/reload                read the configuration file again, as SIGHUP does
//	POST /api/v1/members/NAME/suspend  remove another gateway by force
//
//	POST   /.kgate/tickets             {pool, ttl, note}: a place in line
//	GET    /.kgate/tickets/ID?wait=30s where it stands; waits for the slot
//	PUT    /.kgate/tickets/ID          renews it
//	DELETE /.kgate/tickets/ID          gives the slot or the place back
//	GET    /.kgate/tickets/ID/events   the same as server-sent events
//
// # What it promises
//
// Reading needs no secret, so the admin address belongs on loopback or on a network of operators.
// Nothing shown is a secret, but profiles may hold parts of requests, so they are for loopback
// clients only. A change requires the admin token, with two exceptions for a client on this machine
// that is not a proxy's: over a Unix socket that its file guards it needs none, nor on a loopback
// address if the gateway has no token. On the client address a ticket's ID is the secret: a client
// that has it may renew and end the ticket.
//
// A web page must not read the admin address, or change anything, through the browser of its
// visitor. No response allows other origins, and changes and profiles are refused to pages of other
// origins. On a loopback address, the Host header of a request must be localhost or an IP address,
// which a page under another name (DNS rebinding) cannot send. [CheckHost] does the same for other
// addresses, with a list of names.
//
// Errors of the APIs are problem documents (RFC 9457). A ticket that has ended is 410 with the reason
// for as long as the gateway remembers it, and 404 after that; so is the second DELETE of a ticket,
// which changes nothing.
//
// Names, addresses and reasons are escaped. The page is complete without script. Its
// script, its style and its icon are embedded here, and its policy allows nothing else.
//
// # The fleet
//
// A gateway shows all gateways, not only itself. Each gives a [Report] of itself on the
// peer port, by [NewPeerHandler], and each combines the reports of all, in rounds: at most one in
// 0.4 s for any number of viewers, and none without a viewer. A gateway that does not answer within
// half a second is shown as missing. A gateway's own report comes from its [Source] and its [Lines].
package admin
