//go:build !unix

package journal

import "os"

// flock does nothing on these systems, which kgate is not built for.
func flock(*os.File) error { return nil }
