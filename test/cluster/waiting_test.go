package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/timing"
)

// TestTenThousandWaiting has 10,000 clients wait at one gateway, 1,000 in the ordinary run. It
// and the test process each have a connection to every one of them.
func TestTenThousandWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc to tell the gateway's memory")
	}
	t.Parallel()
	const (
		k    = 50
		hold = 100 * time.Millisecond // long beside the hand-off, which is not what is tested
	)
	waiters, length := 1000, 2*time.Second
	if Soak() {
		waiters, length = 10_000, 10*time.Second
	}
	files := waiters + 1000
	if limit := openFiles(t); limit < files {
		miss := t.Skipf
		if os.Getenv("CI") == "true" {
			miss = t.Fatalf // what CI does not run is not tested
		}
		miss("needs a limit of %d open files per process (ulimit -Hn), it is %d", files, limit)
	}
	u, url := ServeUpstream(t, &demo.Upstream{Hold: hold})
	c := Start(t, Options{Gateways: 1, K: k, Upstream: url, QueueTimeout: 3 * time.Minute, MaxConnections: files})
	g := c.Gateways[0]
	settle(t, g)
	before, err := g.RSS()
	if err != nil {
		t.Fatal(err)
	}

	var rss int64
	var least int
	var opened, closed demo.Stats
	v := &viewer{g: g, stop: make(chan struct{}), ended: make(chan struct{})}
	r, err := demo.Run(t.Context(), demo.LoadConfig{
		Targets: []demo.Target{{Name: g.Name, URL: g.URL(), Clients: waiters + k}},
		Warmup:  length, Duration: length, Drain: time.Minute,
		Opened: func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			if err := Await(ctx, func() error {
				if least = waitingAt(t, g); least < waiters-k {
					return fmt.Errorf("only %d are waiting", least)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if rss, err = g.RSS(); err != nil {
				t.Error(err)
			}
			opened = u.Stats()
			go v.look(t, length/2, u)
		},
		Closed: func() {
			closed = u.Stats()
			close(v.stop)
			least = min(least, waitingAt(t, g))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	full := float64(k) / hold.Seconds()
	each := float64(rss-before) / float64(waiters) / 1024
	t.Logf("%d waiting; memory %.1f MiB before, %.1f MiB with them: %.1f KiB for each", least,
		float64(before)/(1<<20), float64(rss)/(1<<20), each)
	t.Logf("%.0f answers/s, k/hold is %.0f/s: %.1f %%; busy %.1f %%, most in flight %d", r.Overall.PerSecond, full,
		100*r.Overall.PerSecond/full, 100*closed.Busy(opened, k), closed.Max)

	<-v.ended
	v.judge(t, closed.Busy(v.alone, k), v.alone.Busy(opened, k))

	if least < waiters-k {
		t.Errorf("only %d were waiting", least)
	}
	if each >= 40 {
		t.Errorf("%.1f KiB for each waiter", each)
	}
	if Soak() && r.Overall.PerSecond < 0.8*full { // the machine may be small; see test/bench
		t.Errorf("%.0f answers/s, the line could move at %.0f/s", r.Overall.PerSecond, full)
	}
	if closed.Max > k || closed.Max < k && Soak() {
		t.Errorf("most in flight is %d, k is %d", closed.Max, k)
	}
	m, err := g.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, admitted := m.Sum("kgate_requests_total"), m.Sum("kgate_requests_total", `outcome="admitted"`)
	if ended != admitted || admitted < float64(waiters) || r.Overall.Errors > 0 {
		t.Errorf("%v requests, %v of them admitted; failed by status: %v", ended, admitted, r.Overall.Failed)
	}
}

// viewer looks at a gateway's pages every second, as an operator's browser, a
// terminal and Prometheus would.
type viewer struct {
	g     *Gateway
	stop  chan struct{}
	ended chan struct{}
	alone demo.Stats // of the upstream, until the viewer came
	took  map[string][]time.Duration
}

// look begins after a while and ends when stop is closed.
func (v *viewer) look(t *testing.T, after time.Duration, u *demo.Upstream) {
	defer close(v.ended)
	v.took = make(map[string][]time.Duration)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-v.stop:
		return
	}
	v.alone = u.Stats()
	for {
		for _, path := range []string{"/", "/debug/line", "/metrics", "/api/v1/line?pool=" + PoolName, "/api/v1/status"} {
			asked := time.Now()
			if _, err := v.g.get(t.Context(), path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			v.took[path] = append(v.took[path], time.Since(asked))
		}
		select {
		case <-tick.C:
		case <-v.stop:
			return
		}
	}
}

// judge: each page is there at once, and the line moves as fast as before.
func (v *viewer) judge(t *testing.T, with, alone float64) {
	t.Helper()
	for path, took := range v.took {
		slices.Sort(took)
		timing.Within(t, "with a viewer, "+path, took[len(took)/2], 200*time.Millisecond)
	}
	if len(v.took) == 0 {
		t.Error("nobody has looked")
		return
	}
	t.Logf("slots busy %.1f %% without a viewer, %.1f %% with", 100*alone, 100*with)
	if Soak() && with < 0.95*alone {
		t.Error("who looks slows the line down")
	}
}

// settle has the gateway serve a little, so that what it needs once is there.
func settle(t *testing.T, g *Gateway) {
	t.Helper()
	_, err := demo.Run(t.Context(), demo.LoadConfig{
		Targets: []demo.Target{{URL: g.URL(), Clients: 50}}, Duration: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error {
		if n := waitingAt(t, g); n > 0 {
			return fmt.Errorf("%d are waiting", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func waitingAt(t *testing.T, g *Gateway) int {
	t.Helper()
	s, err := g.Status(t.Context())
	if err != nil {
		t.Error(err)
		return 0
	}
	if len(s.Pools) == 0 {
		return 0 // it has no lease
	}
	return s.Pools[0].Waiting
}
