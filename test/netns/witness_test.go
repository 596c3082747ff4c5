package netns

import (
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestWitness cuts each of two gateways and a witness off, and then one link after the
// other. The rest go on while the fault lasts, and never more than k are in flight.
func TestWitness(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	const (
		both  = 2
		lease = time.Second
	)
	w := &world{Network: New(t, both+1)}
	var url string
	w.judge, url = w.upstream(t, 20*time.Millisecond)
	w.judge.Keep()
	w.cluster = cluster.Start(t, cluster.Options{
		Gateways: both + 1, Witness: true, K: k, Upstream: url, Lease: lease, Hosts: w.Hosts, Dial: w.Dial,
	})
	w.load = cluster.StartLoad(t, w.cluster.Gateways[:both], cluster.LoadOptions{Clients: 8, Dial: w.Dial})
	for name, fault := range map[string]struct {
		ways  []Way
		serve int
		soak  bool
	}{
		"gw-1 is cut off":                      {Split(Drop, []int{0}, []int{1, 2}), 1, false},
		"gw-2 is cut off":                      {Split(Drop, []int{1}, []int{0, 2}), 1, true},
		"the witness is cut off":               {Split(Drop, []int{2}, []int{0, 1}), 2, false},
		"gw-1 does not reach the witness":      {Split(Drop, []int{0}, []int{2}), 2, true},
		"gw-2 does not reach the witness":      {Split(Drop, []int{1}, []int{2}), 2, false},
		"the gateways do not reach each other": {Split(Drop, []int{0}, []int{1}), 1, false},
	} {
		if fault.soak && !cluster.Soak() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			cluster.Span(t, lease)
			began := time.Now()
			w.Set(t, fault.ways...)
			cluster.Span(t, 4*lease)
			gap := cluster.Gap(w.judge.Since(began), began, time.Now())
			settled := time.Now()
			cluster.Span(t, 2*lease)
			served := cluster.Served(w.load.Since(settled), time.Now())
			t.Logf("no request for %v; later served: %v", gap.Round(time.Millisecond), served)
			if gap > 2*lease+time.Second+cluster.Stood(began, time.Now()) {
				t.Errorf("no request for %v while the fault lasts", gap)
			}
			if len(served) != fault.serve {
				t.Errorf("%v serve, want %d", served, fault.serve)
			}
			w.Heal(t)
			for _, g := range w.cluster.Gateways {
				if err := g.AwaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if _, most, _ := w.judge.Counts(); most != k {
		t.Errorf("most in flight %d, k is %d", most, k)
	}
}
