package node

import (
	"testing"
	"time"
)

// TestAwake: a process that stood still has run since it went on.
func TestAwake(t *testing.T) {
	var a awake
	began := time.Now()
	for _, look := range []struct{ at, want time.Duration }{
		{0, 0},
		{time.Second, time.Second},
		{2500 * time.Millisecond, 2500 * time.Millisecond},
		{14 * time.Second, 0},
		{15 * time.Second, time.Second},
	} {
		if got := a.since(began.Add(look.at)); got != look.want {
			t.Errorf("at %v: has run for %v, want %v", look.at, got, look.want)
		}
	}
}
