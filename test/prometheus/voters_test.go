package prometheus

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestQuorumAtRisk loses one of three gateways, and looks for the alert when nobody counts it any
// more.
func TestQuorumAtRisk(t *testing.T) {
	if !cluster.Soak() {
		t.Skip("takes two minutes; package membership has who votes in virtual time")
	}
	t.Parallel()
	cluster.Need(t, "prometheus", "prometheus") // before anything is built
	const alert = "KgateQuorumAtRisk"
	c := cluster.Start(t, cluster.Options{K: k, Upstream: newSite(t).URL()})
	p := StartPrometheus(t, c.Gateways, Classic, Hasten(t, "alerts.yaml"))
	p.Scrape(t, c.Gateways...)
	fires := func(want bool) {
		t.Helper()
		await(t, func() error {
			firing, err := p.Firing(t.Context())
			var names []string
			for _, a := range firing {
				names = append(names, a.Name)
			}
			if err == nil && slices.Contains(names, alert) != want {
				err = fmt.Errorf("%s is to fire: %t; %v do", alert, want, names)
			}
			return err
		})
	}
	if err := c.Gateways[2].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cluster.Span(t, 75*time.Second)
	fires(true)
	c.Restart(t, 2)
	fires(false)
}
