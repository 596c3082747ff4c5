//go:build unix

package downstream

import "golang.org/x/sys/unix"

// ShareOfFiles returns so many sixteenths of the file descriptors that this process may have; 0:
// that is not known. A client of a gateway may need one more, for a connection to an upstream, so
// clients may use seven sixteenths: the rest is for pipes (package relay) and for what is not a
// client's.
func ShareOfFiles(sixteenths uint64) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur)/16*sixteenths, 1<<30)) // FreeBSD's is signed
}
