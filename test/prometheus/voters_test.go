package prometheus

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestQuorumAtRisk loses one of three gateways, and looks for the alert when the others have
// long stopped to count it as one of them. KGATE_SOAK=1 has the usual lease.
func TestQuorumAtRisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	cluster.Need(t, "prometheus", "prometheus") // before anything is built
	const alert = "KgateQuorumAtRisk"
	lease := time.Second
	if cluster.Soak() {
		lease = 3 * time.Second
	}
	c := cluster.Start(t, cluster.Options{K: k, Upstream: newSite(t).URL(), Lease: lease})
	p := StartPrometheus(t, c.Gateways, Classic, Hasten(t, "alerts.yaml"))
	p.Scrape(t, c.Gateways...)
	if err := c.Gateways[2].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cluster.Span(t, 25*lease)
	await(t, 10*time.Second, func() error {
		firing, err := p.Firing(t.Context())
		var names []string
		for _, a := range firing {
			names = append(names, a.Name)
		}
		if err == nil && !slices.Contains(names, alert) {
			err = fmt.Errorf("%s does not fire; %v do", alert, names)
		}
		return err
	})
	c.Restart(t, 2)
	await(t, time.Minute, func() error {
		firing, err := p.Firing(t.Context())
		for _, a := range firing {
			if a.Name == alert {
				err = fmt.Errorf("%s still fires", alert)
			}
		}
		return err
	})
}
