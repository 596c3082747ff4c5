//go:build unix

package journal

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long to wait for a process that is just ending.
const lockWait = time.Second

// flock keeps other processes from locking the file, until it is closed.
func flock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Since(began) > lockWait {
			return ErrInUse
		}
	}
}
