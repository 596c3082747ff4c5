//go:build unix

package proxy

import "golang.org/x/sys/unix"

// defaultMaxConnections is half of the file descriptors that this process may
// have: each client may need one more connection, to an upstream.
func defaultMaxConnections() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur/2, 1<<30))
}
