//go:build !linux && !darwin

package node

// diskSpace is not known here.
func diskSpace(string) (size, free uint64, ok bool) { return 0, 0, false }
