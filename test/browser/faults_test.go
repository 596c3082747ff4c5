package browser

import (
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/prometheus"
)

// TestDashboardAtFaults draws the dashboard in each of the faults of docs/faults.md: the first row names the
// alert that says what is wrong.
func TestDashboardAtFaults(t *testing.T) {
	cluster.OnlySoak(t, "TestDashboard")
	chrome, script := browser(t), bundle(t)
	for _, f := range prometheus.Faults {
		t.Run(f.Picture, func(t *testing.T) {
			began := time.Now()
			n := prometheus.StartNight(t, &f, 25*time.Second, 250*time.Millisecond, prometheus.Hasten)
			n.Meet(t)
			time.Sleep(2 * time.Second) // some alerts of hasty rules are short
			d := &dashboard{chrome: chrome, server: serveDashboard(t, n.Prometheus, script), began: began}
			d.drawUntil(t, f.Picture, "What is wrong", f.Shows)
		})
	}
}
