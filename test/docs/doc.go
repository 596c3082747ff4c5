// Package docs runs every command block of README.md and docs/, word by word.
//
// # Machines
//
// Each page has machines of its own, which are network namespaces on one wire,
// and a shell on each of them that stays open from the page's first block to
// its last:
//
//	gw-1, gw-2, gw-3   10.0.0.1 to 10.0.0.3, the gateways
//	upstream           10.0.1.1
//
// The host names are those, the working directory is empty (README.md: the
// checkout), and kgate is in the PATH.
//
// # What a page says of its blocks
//
// Blocks marked sh are run, on gw-1 and to their end, which must be a success.
// An HTML comment in the line above, which no reader sees, says otherwise:
//
//	<!-- at gw-1 gw-2 gw-3 -->   on these machines, at the same time
//	<!-- until "ready" -->       it goes on running; go on when it has said that
//	<!-- shows "0 failed" -->    it must say that, too
//	<!-- fails -->               it must not succeed
//	<!-- file kgate.yaml -->     the block is a file's content, not commands
//	<!-- copied cluster.key -->  the file that it makes is on all machines then
//	<!-- not run: reason -->     it is not run
//
// Several go into one comment, separated by semicolons. Needs Linux, root and
// ip (Debian: iproute2).
package docs
