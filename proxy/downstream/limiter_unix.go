//go:build unix

package downstream

import "golang.org/x/sys/unix"

// defaultMaxConnections is seven sixteenths of the file descriptors that this process may
// have: each client may need one more connection, to an upstream. The rest is for pipes
// (package relay) and for what is not a client's.
func defaultMaxConnections() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur/16*7, 1<<30))
}
