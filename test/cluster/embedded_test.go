package cluster

import (
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/internal/demo"
)

// A node in a program, whose handler asks the upstream itself, and two gateways share a
// pool: at most k in the upstream, and all wait equally long.
func TestEmbeddedNode(t *testing.T) {
	const k = 6
	window, within := 8*time.Second, 0.03
	if Soak() {
		window, within = time.Minute, 0.01
	}
	u, err := demo.NewUpstream(demo.UpstreamConfig{Hold: demo.Distribution{Mean: 40 * time.Millisecond, SCV: 1}, Seed: 3, K: k})
	if err != nil {
		t.Fatal(err)
	}
	judge, _, upstream := NewJudge(t, u)
	c := Start(t, Options{Gateways: 2, K: k, Upstream: upstream})
	n, err := kgate.Start(t.Context(), kgate.Config{
		Name: "program",
		Peers: kgate.Peers{
			Listen: "127.0.0.1:0", Gossip: "127.0.0.1:0", Join: []string{c.Gateways[0].Gossip, c.Gateways[1].Gossip},
		},
		Pools: []kgate.Pool{{Name: PoolName, K: k, QueueLimit: 20_000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	handler := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(at) },
		Transport: n.Transport(&http.Transport{MaxIdleConnsPerHost: k}),
	}
	_, program := serve(t, &http.Server{ConnContext: kgate.ConnContext, Handler: n.Middleware(PoolName)(handler)})

	clients := []int{63, 18, 9}
	var stats demo.Stats
	load := demo.LoadConfig{Warmup: 3 * time.Second, Duration: window, Opened: u.Reset, Closed: func() { stats = u.Stats() }}
	for i, target := range []string{program, c.Gateways[0].URL(), c.Gateways[1].URL()} {
		load.Targets = append(load.Targets, demo.Target{URL: target, Clients: clients[i]})
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
}
