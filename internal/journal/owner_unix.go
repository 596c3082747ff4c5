//go:build unix

package journal

import (
	"io/fs"
	"os"
	"syscall"
)

// stat returns a directory's FileInfo and the uid of its owner.
func stat(dir string) (info fs.FileInfo, owner int, err error) {
	info, err = os.Stat(dir)
	if err != nil {
		return nil, 0, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(s.Uid)
	}
	return info, owner, nil
}
