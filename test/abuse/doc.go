// Package abuse does to real gateways what clients and strangers must not get
// away with: one client that takes the whole line, requests that two parsers read
// as two different ones, headers that only the gateway may write, clients that
// send a byte a second, and noise on every port.
//
// What reached the upstream is judged by a raw socket there: it keeps the bytes.
// What came of each attempt is in testdata/attempts.txt; with -update the tests
// rewrite it.
//
// The harness is that of package cluster. All traffic stays on loopback.
package abuse
