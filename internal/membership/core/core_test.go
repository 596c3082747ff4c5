package core

import (
	"strings"
	"testing"
	"time"
)

// Gateways that expect each other found one cluster, and all stand in it.
func TestFounding(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		w := started(1, n, time.Second)
		w.trace = new(strings.Builder)
		if !w.runUntil(10*time.Second, func() bool { return w.whole(w.hosts...) }) {
			t.Errorf("%d hosts are not whole: %v\n%s", n, w.errs, w.trace)
		}
		t.Logf("%d hosts: %v, %d steps", n, w.now, w.steps)
	}
}
