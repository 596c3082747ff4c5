// Package cluster runs real gateways: processes of the kgate binary, on real
// sockets, on this machine. Its tests show on them what the unit tests show on
// the parts.
//
// # The harness
//
// [Main] builds the binary once. [Start] starts gateways on ports of their own
// choice and waits until they are ready; a [Gateway] tells its status, its
// metrics and its log, and takes signals. [ServeUpstream] and [NewJudge] are
// upstreams that count what is in flight: they, and never a gateway, say whether
// more than k requests got in. All of it ends with the test; if that failed, the
// tail of each gateway's log is printed.
//
// The environment variable KGATE_TEST_BINARY names a binary to test in place of
// the one that is built: one with a planted defect, with the race detector, or a
// released one.
//
// The tests measure time and load the machine, so they run one after the other.
// All traffic stays on loopback.
package cluster
