// Package haproxy runs contrib/haproxy, its script and its configuration, in real
// HAProxys that ask real gateways for slots. The upstream counts what is in flight.
//
// The environment variable KGATE_SOAK makes the runs long. A HAProxy that is
// missing skips the tests, which name its Debian package; with CI=true that is a
// failure. All traffic stays on loopback.
package haproxy
