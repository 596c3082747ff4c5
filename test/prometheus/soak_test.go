package prometheus

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// asTheyAre returns the files of rules that users take, with their own times.
func asTheyAre(t *testing.T) (files []string) {
	t.Helper()
	for _, name := range []string{"rules.yaml", "alerts.yaml"} {
		path, err := filepath.Abs(filepath.Join(configs, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	return files
}

// startLoad has 63, 18 and 9 clients ask at three gateways.
func startLoad(t *testing.T, gateways []*cluster.Gateway) {
	t.Helper()
	for i, clients := range []int{63, 18, 9} {
		cluster.StartLoad(t, gateways[i:i+1], cluster.LoadOptions{Clients: clients, Patience: 2 * time.Minute})
	}
}

// TestUpstreamStops stops the upstream of a busy fleet for 90 s. An alert calls it
// critical in that time, and neither Prometheus nor the status page shows a small spread,
// not even when all who waited have timed out and a few others were admitted.
func TestUpstreamStops(t *testing.T) {
	cluster.OnlySoak(t, "takes minutes")
	t.Parallel()
	const usual, stopped, settled = time.Minute, 90 * time.Second, 15 * time.Second
	addr := cluster.ReservePort(t)
	upstream := cluster.StartProcess(t, cluster.Binary(t), "demo", "upstream", "--listen", addr, "--hold", "200ms", "--scv", "1")
	c := cluster.Start(t, cluster.Options{K: k, Upstream: "http://" + addr, QueueTimeout: usual + 2*stopped}) // who waits goes on
	p := StartPrometheus(t, c.Gateways, Classic, asTheyAre(t)...)
	startLoad(t, c.Gateways)
	time.Sleep(usual)
	if firing, err := p.Firing(t.Context()); err != nil || len(firing) > 0 {
		t.Fatalf("before anything has happened: %v, %v", firing, err)
	}

	began := time.Now()
	if err := upstream.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upstream.Signal(syscall.SIGCONT) }()
	var alarmed time.Duration
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for since := time.Duration(0); since < stopped; since = time.Since(began) {
		<-tick.C
		if since > settled {
			notFair(t, p, c.Gateways[0], since)
		}
		firing, err := p.Firing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range firing {
			if a.Name == "KgateUpstreamSilent" && alarmed == 0 {
				alarmed = since
				tells(t, c.Gateways[0], "has not answered for")
			}
		}
	}
	t.Logf("KgateUpstreamSilent fires %.0f s after the stop", alarmed.Seconds())
	if alarmed == 0 {
		t.Errorf("no alert within %v", stopped)
	}
}

// notFair checks that a pool whose upstream has stopped is not called fair.
func notFair(t *testing.T, p *Prometheus, g *cluster.Gateway, since time.Duration) {
	t.Helper()
	const small = 5.0 // seconds: above the mean wait of the fleet when all is well
	for _, expr := range []string{`kgate:spread:seconds{pool="pool"}`, panelOf(t, "Spread of the waits").queries[0]} {
		if v, err := p.Value(t.Context(), expr); err != nil || v < small {
			t.Errorf("after %.0f s: %s is %.2f s, %v", since.Seconds(), expr, v, err)
		}
	}
	s, err := g.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pools) == 0 {
		t.Fatal("the gateways have lost each other: was this machine stopped?")
	}
	if f := s.Pools[0].Fleet; f.SpreadMillis < 1000*small {
		t.Errorf("after %.0f s the status page says: oldest %.1f s, spread %.0f ms", since.Seconds(), f.OldestSeconds, f.SpreadMillis)
	}
}

var slotsFor = flag.Duration("slots.for", 2*time.Minute, "how long TestSlotsInUseAreExact has a fleet busy")

// TestSlotsInUseAreExact has a fleet busy, for ten minutes with -slots.for 10m. What
// Prometheus shows as slots in use is never above k, and on average within 2 % of what the
// upstream has counted.
func TestSlotsInUseAreExact(t *testing.T) {
	cluster.OnlySoak(t, "takes minutes")
	t.Parallel()
	const warm = 90 * time.Second // the rule looks a minute back
	u, url := cluster.ServeUpstream(t, &demo.Upstream{Hold: 200 * time.Millisecond, SCV: 1})
	c := cluster.Start(t, cluster.Options{K: k, Upstream: url})
	p := StartPrometheus(t, c.Gateways, Classic, asTheyAre(t)...)
	startLoad(t, c.Gateways)
	time.Sleep(warm)
	before, began := u.Stats(), time.Now()
	time.Sleep(*slotsFor)
	judged := u.Stats()
	for _, expr := range []string{
		`kgate:in_use:slots{pool="pool"}`,
		panelOf(t, "Utilization").queries[0] + fmt.Sprintf(" * %d", k),
	} {
		series, err := p.Range(t.Context(), expr, began)
		if err != nil || len(series) != 1 {
			t.Fatalf("%s: %d series, %v", expr, len(series), err)
		}
		most, sum := 0.0, 0.0
		for _, v := range series[0].Values {
			most, sum = max(most, v), sum+v
		}
		mean, inFlight := sum/float64(len(series[0].Values)), judged.Busy(before, 1)
		t.Logf("slots in use %.3f on average and %.3f at most in %d values; the upstream counts %.3f: %s", mean, most, len(series[0].Values), inFlight, expr)
		if most > k || math.Abs(mean-inFlight) > 0.02*inFlight {
			t.Errorf("%s: %.3f on average, the upstream counts %.3f; at most %.3f, k is %d", expr, mean, inFlight, most, k)
		}
	}
	if judged.Max > k {
		text, _ := json.Marshal(judged)
		t.Errorf("at the upstream: %s", text)
	}
}
