//go:build unix

package cluster

import (
	"syscall"
	"testing"
)

// openFiles returns how many files this process and its children may open: Go
// raises the soft limit to the hard one when a program starts.
func openFiles(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Max, 1<<30))
}
