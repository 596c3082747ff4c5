//go:build linux || darwin

package node

import "syscall"

// diskSpace returns the size of the disk of a directory, and how much of it is free for this process,
// in bytes; not ok: not known.
func diskSpace(dir string) (size, free uint64, ok bool) {
	var s syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &s) != nil {
		return 0, 0, false
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), true
}
