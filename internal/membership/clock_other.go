//go:build !linux

package membership

import "time"

// sinceBoot is 0: the monotonic clock has to do.
func sinceBoot() time.Duration { return 0 }
