// Package peers shows gateways, as processes, among the programs that people put
// around them: curl, nghttp, h2load, gRPC and WebSocket libraries, rsync and Redis in front,
// HAProxy and nginx in front and behind. What went through is compared byte for
// byte, and how many requests are in flight the upstream counts.
//
// The environment variable KGATE_SOAK sends 4 GiB up and down, in place of less.
// A program that is missing skips its test, which names its Debian package; with
// CI=true that is a failure. All traffic stays on loopback.
package peers
