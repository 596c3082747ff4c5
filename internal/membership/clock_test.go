package membership

import (
	"testing"
	"time"
)

// On a machine that does not sleep, the clock of leases goes as all others do.
func TestBootNow(t *testing.T) {
	before, from := time.Now(), bootNow()
	time.Sleep(20 * time.Millisecond)
	got := bootNow().Sub(from)
	if want := time.Since(before); got < 20*time.Millisecond || got > want+time.Millisecond {
		t.Errorf("%v in %v", got, want)
	}
}
