// Package timing judges how long things take in tests that run in real time. Machines that run
// tests have other work, too, so a real time says little about a bound: the exact bounds are
// judged in virtual time. A test in real time fails only if something takes several times its
// bound, and logs what it took.
package timing

import (
	"os"
	"testing"
	"time"
)

// Slack is how many times its bound something may take: 5, and 1 with KGATE_SOAK set, which is
// for a quiet machine.
func Slack() time.Duration {
	if os.Getenv("KGATE_SOAK") != "" {
		return 1
	}
	return 5
}

// Within logs how long something took, and fails the test if that is more than [Slack] times
// the bound.
func Within(tb testing.TB, what string, took, bound time.Duration) {
	tb.Helper()
	tb.Logf("%s: %v, bound %v", what, took.Round(time.Millisecond), bound)
	if most := Slack() * bound; took > most {
		tb.Errorf("%s: %v, want at most %v", what, took, most)
	}
}
