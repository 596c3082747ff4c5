package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

const (
	slots    = 6
	holdTime = 40 * time.Millisecond
)

// contender is one way to let slots requests in through several proxies.
type contender struct {
	name string
	urls func(b *testing.B, upstream string) []string
}

func haproxies(limits ...int) func(*testing.B, string) []string {
	return func(b *testing.B, upstream string) []string {
		b.Helper()
		var urls []string
		for _, limit := range limits {
			_, url := startHAProxy(b, []string{upstream}, limit)
			urls = append(urls, url)
		}
		return urls
	}
}

func kgates(n int) func(*testing.B, string) []string {
	return func(b *testing.B, upstream string) []string {
		b.Helper()
		return newSystem(b, "", cluster.Options{Gateways: n, Name: fmt.Sprintf("of%d", n), K: slots, Upstream: upstream}).urls
	}
}

// startHAProxy starts a HAProxy that lets at most so many requests into each upstream, and
// returns its URL.
func startHAProxy(b *testing.B, upstreams []string, limits ...int) (process *cluster.Process, url string) {
	b.Helper()
	addr := cluster.ReservePort(b)
	file := filepath.Join(b.TempDir(), "haproxy.cfg")
	config := fmt.Sprintf(`global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout queue 60s
  http-reuse always
listen pool
  balance leastconn
  bind %s
`, addr)
	for i, u := range upstreams {
		config += fmt.Sprintf("  server upstream%d %s maxconn %d\n", i, strings.Trim(strings.TrimPrefix(u, "http://"), "/"), limits[i])
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	process = cluster.StartProcess(b, "haproxy", "-db", "-q", "-f", file)
	if err := cluster.AwaitListening(b.Context(), addr); err != nil {
		b.Fatal(err)
	}
	return process, "http://" + addr + "/"
}

// BenchmarkFairness compares three kgates with three HAProxies that have k split
// between them, at the same time and with the same seeds: how long the clients of
// each wait, and how busy the slots are.
func BenchmarkFairness(b *testing.B) {
	t, filled := newTable("Three proxies share k = 6: 90 clients, hold 40 ms (SCV 1), 10 s",
		"system\tclients\tmean waits ms\tfactor\t(max-mean)/mean\tslots busy\tmost in flight")
	if filled {
		return
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		b.Skip("needs HAProxy (Debian package haproxy)")
	}
	three := []contender{{"three kgates", kgates(3)}, {"three HAProxies, maxconn 2 each", haproxies(2, 2, 2)}}
	one := []contender{{"one kgate", kgates(1)}, {"one HAProxy, maxconn 6", haproxies(slots)}}
	for _, load := range []struct {
		split      []int
		contenders []contender
	}{{[]int{63, 18, 9}, three}, {[]int{90, 0, 0}, three}, {[]int{90}, one}} {
		rows := make([]string, len(load.contenders))
		runs := make([]func() string, len(load.contenders))
		for i, c := range load.contenders {
			runs[i] = c.prepare(b, load.split)
		}
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() { rows[i] = runs[i]() })
		}
		wg.Wait()
		t.rows = append(t.rows, rows...)
	}
	b.ReportMetric(0, "ns/op")
}

// prepare starts a contender with an upstream of its own. The function that it
// returns runs the clients and returns the row of the table.
func (c contender) prepare(b *testing.B, split []int) func() string {
	b.Helper()
	u, upstream := cluster.ServeUpstream(b, &demo.Upstream{Hold: holdTime, SCV: 1})
	var began, ended demo.Stats
	cfg := demo.LoadConfig{
		Warmup: 3 * time.Second, Duration: 10 * time.Second,
		Opened: func() { began = u.Stats() }, Closed: func() { ended = u.Stats() },
	}
	for i, url := range c.urls(b, upstream) {
		cfg.Targets = append(cfg.Targets, demo.Target{URL: url, Clients: split[i]})
	}
	return func() string {
		r, err := demo.Run(b.Context(), cfg)
		if err != nil {
			b.Error(err)
			return c.name
		}
		if r.Overall.Errors > 0 {
			b.Errorf("%s: failed by status: %v", c.name, r.Overall.Failed)
		}
		waits, clients := "", ""
		least, most := 1e9, 0.0
		for i, s := range r.Targets {
			separator := " / "
			if i == 0 {
				separator = ""
			}
			clients += fmt.Sprintf("%s%d", separator, split[i])
			if s.Count == 0 {
				waits += separator + "-"
				continue
			}
			mean := millis(s.Mean)
			least, most = min(least, mean), max(most, mean)
			waits += fmt.Sprintf("%s%.0f", separator, mean)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%.2f\t%.2f\t%.1f %%\t%d", c.name, clients, waits, most/least,
			float64(r.Overall.Spread())/float64(r.Overall.Mean), 100*ended.Busy(began, slots), ended.Max)
	}
}
