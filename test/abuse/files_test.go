//go:build unix

package abuse

import (
	"os"
	"syscall"
	"testing"
)

// needFiles skips where a process may not have so many files open, and fails in
// CI: what that does not run is not tested.
func needFiles(t *testing.T, files int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= uint64(files) {
		return
	}
	miss := t.Skipf
	if os.Getenv("CI") == "true" {
		miss = t.Fatalf
	}
	miss("needs a limit of %d open files per process (ulimit -Hn), it is %d", files, limit.Cur)
}
