package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestOrderlyRestartsAreNoTrouble stops each of three busy gateways in order and starts
// it again. No gateway logs a warning, none loses its lease, and none refuses a peer.
func TestOrderlyRestartsAreNoTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 6
	// These are the machine's: its disk, and that a gateway which has just started does not hear of the others for a while.
	slow := []string{"the disk of data_dir is slow", "not in a cluster yet", "cannot reach peer"}
	c, u := busyCluster(t, k, Options{Durable: true})
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 10})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	// Restart makes a process and a log of its own.
	logs := make([]*Log, 0, 2*len(c.Gateways))
	for i, g := range c.Gateways {
		if code, err := g.Stop(); err != nil || code != 0 {
			t.Fatalf("%s ends with %d, %v", g.Name, code, err)
		}
		logs = append(logs, g.Log)
		c.Restart(t, i)
		if err := c.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	most := u.Stats().Max // those that Stop breaks off end at the upstream when it notices
	load.Stop()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Error(err)
	}
	for _, g := range c.Gateways {
		logs = append(logs, g.Log)
		m, err := g.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"kgate_lease_lost_total", "kgate_peer_refused_total"} {
			if n := m.Sum(name); n != 0 {
				t.Errorf("%s of %s is %g", name, g.Name, n)
			}
		}
	}
	for _, log := range logs {
		lines, _ := log.Lines()
		for _, line := range lines {
			var r Record
			if json.Unmarshal([]byte(line), &r) == nil && slices.Contains([]string{"WARN", "ERROR"}, r.Text("level")) &&
				!slices.Contains(slow, r.Text("msg")) && !strings.Contains(r.Text("error"), "unknown peer") { // who has just left, before the next epoch
				t.Errorf("an orderly restart is logged as trouble: %s", line)
			}
		}
	}
	if most != k {
		t.Errorf("most in flight at the upstream %d, k is %d", most, k)
	}
}
