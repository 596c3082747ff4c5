package haproxy

import (
	"math"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// Three HAProxys with unequal numbers of clients: at most k in the upstream, and
// all wait equally long.
func TestFair(t *testing.T) {
	const k = 6
	window, within := 8*time.Second, 0.03
	if soak {
		window, within = time.Minute, 0.01
	}
	u, err := demo.NewUpstream(demo.UpstreamConfig{Hold: demo.Distribution{Mean: 40 * time.Millisecond, SCV: 1}, Seed: 3, K: k})
	if err != nil {
		t.Fatal(err)
	}
	judge, _, upstream := cluster.NewJudge(t, u)
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Name: "fair"})
	var stats demo.Stats
	load := demo.LoadConfig{Warmup: 3 * time.Second, Duration: window, Opened: u.Reset, Closed: func() { stats = u.Stats() }}
	clients := []int{63, 18, 9}
	for i, h := range fleet(t, c, options{upstream: upstream, ttl: 10, wait: 60}) {
		load.Targets = append(load.Targets, demo.Target{URL: h.url, Clients: clients[i]})
	}
	result, err := demo.Run(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	if n := result.Overall.Errors(); n > 0 {
		t.Errorf("%d failed: %v", n, result.Overall.Failed)
	}
	if _, most, total := judge.Counts(); most != k {
		t.Errorf("of %d requests at most %d were in flight at the upstream, k is %d", total, most, k)
	}
	mean := result.Overall.Access.Mean
	for i, s := range result.Targets {
		t.Logf("%d clients: %d answers, mean wait %v", clients[i], s.Access.Count, s.Access.Mean.Round(100*time.Microsecond))
		if off := math.Abs(float64(s.Access.Mean-mean)) / float64(mean); off > within {
			t.Errorf("%d clients wait %v, all together %v: %.1f %% off", clients[i], s.Access.Mean, mean, 100*off)
		}
	}
	t.Logf("slots busy %.1f %%", 100*stats.Busy)
	whole(t, c, 5*time.Second)
}
