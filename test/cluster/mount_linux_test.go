package cluster

import (
	"fmt"
	"syscall"
)

func mount(dir string, size int) error {
	return syscall.Mount("kgate-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size))
}

func remountReadOnly(dir string) error {
	return syscall.Mount("kgate-test", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
