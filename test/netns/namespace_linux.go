package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaceDir is where ip keeps namespaces by name.
const namespaceDir = "/var/run/netns"

// inside runs f on a thread that has entered the namespace. Sockets that f opens
// stay there.
func inside(namespace string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		// The thread is not given back: it ends with the goroutine, and nothing
		// else ever runs in the namespace.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread would stay in the namespace for ever; while this
			// goroutine keeps it, another one runs on another.
			defer runtime.UnlockOSThread()
			done <- inside(namespace, f)
			return
		}
		done <- func() error {
			file, err := os.Open(filepath.Join(namespaceDir, namespace))
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering %s: %w", namespace, err)
			}
			return f()
		}()
	}()
	return <-done
}
