//go:build unix

package transport

import (
	"errors"
	"syscall"
)

const writesOnce = true

// writeOnce writes as much of b as the kernel takes at once, which may be nothing.
func writeOnce(fd uintptr, b []byte) (int, error) {
	n, err := syscall.Write(int(fd), b)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return 0, nil
	}
	return n, err
}
