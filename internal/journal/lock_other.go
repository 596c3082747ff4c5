//go:build !unix

package journal

import "os"

// lock keeps nobody out on these systems, which kgate is not built for.
func lock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
