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
// more than k requests got in. A [Load] is clients that ask without a pause and
// keep a record of what they got. All of it ends with the test; if that failed,
// the tail of each gateway's log is printed.
//
// The environment variable KGATE_SOAK asks for the long runs of the tests that
// have a short one; KGATE_KILLS and KGATE_TICKETS set how many gateways are killed
// and how many tickets wait.
//
// The environment variable KGATE_TEST_BINARY names a binary to test in place of
// the one that is built: one with a planted defect, with the race detector, or a
// released one.
//
// The tests measure time and load the machine, so they run one after the other.
// All traffic stays on loopback.
package cluster
