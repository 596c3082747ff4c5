// Package demo is a sample upstream and a sample load, for the demo command, the cluster tests and the
// benchmarks.
//
// Upstream is an HTTP server that holds each request for a while and
// counts its own concurrency, so that the upstream and not the gateway is the
// judge of "at most k". Run is a closed system of clients, as in the papers:
// each client asks, waits for its answer, and asks again. It measures
// access times, the time from a request to its admission.
//
// # Model
//
// The upstream's request is in flight from the entry of its handler until just
// before its last byte is handed to the network: from then on the next request
// may rightly come in. Counting until after that byte would see k+1 where there
// are k. An aborted request is in flight until the upstream notices.
//
// A client cannot see when it was admitted. So the upstream reports how long it held the request, in
// the header Demo-Hold-Ms, and the access time is the latency to the last byte minus that time.
package demo
