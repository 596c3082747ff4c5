//go:build !linux && !darwin

package node

// diskSpace returns false: the space is not known on this system.
func diskSpace(string) (size, free uint64, ok bool) { return 0, 0, false }
