package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// BenchmarkUpstreams has three proxies before three upstreams that stand 2, 2 and 4 requests, and says how
// many arrivals the upstreams themselves found above that. HAProxy and Caddy send each request to the server
// with the fewest connections of their own, and are told what each server stands; Caddy has one number for
// all servers.
func BenchmarkUpstreams(b *testing.B) {
	const lasts = 20 * time.Second
	t, filled := newTable("Three proxies before upstreams that stand 2, 2 and 4 requests: 60 clients, hold 60 ms (SCV 1), 20 s",
		"system\tarrivals\tabove k\tmost at each\tslots busy\tanswer p50 ms\tp99 ms")
	if filled {
		return
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		b.Skip("needs HAProxy (Debian package haproxy)")
	}
	stands := []int{2, 2, 4}
	contenders := []struct {
		name string
		urls func(b *testing.B, upstreams []string) []string
	}{
		{"three kgates, k 2, 2, 4", func(b *testing.B, upstreams []string) []string {
			b.Helper()
			opt := cluster.Options{K: 8}
			for i, u := range upstreams {
				opt.Upstreams = append(opt.Upstreams, cluster.Upstream{URL: u, K: stands[i]})
			}
			return newSystem(b, "", opt).urls
		}},
		{"three HAProxies, leastconn, maxconn 2, 2, 4 each", func(b *testing.B, upstreams []string) []string {
			b.Helper()
			return leastConn(b, upstreams, stands)
		}},
		{"three HAProxies, leastconn, maxconn 1, 1, 1 each", func(b *testing.B, upstreams []string) []string {
			b.Helper()
			return leastConn(b, upstreams, []int{1, 1, 1})
		}},
		{"three Caddys, least_conn, at most 1 each", func(b *testing.B, upstreams []string) []string {
			b.Helper()
			if !cluster.Soak() {
				return nil // compiles Caddy
			}
			var urls []string
			for range stands {
				s := startCaddy(b, "", "", fmt.Sprintf("reverse_proxy %s {\n lb_policy least_conn\n lb_try_duration 60s\n lb_try_interval 5ms\n unhealthy_request_count 1\n}", strings.Join(upstreams, " ")))
				urls = append(urls, s.urls...)
			}
			return urls
		}},
	}
	for _, c := range contenders {
		var judges []*cluster.Judge
		var upstreams []string
		for range stands {
			j, _, url := cluster.NewJudge(b, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(time.Duration(rand.ExpFloat64() * 60 * float64(time.Millisecond))):
				case <-r.Context().Done():
				}
			}))
			j.Keep()
			judges, upstreams = append(judges, j), append(upstreams, url)
		}
		cfg := demo.LoadConfig{Duration: lasts}
		for _, url := range c.urls(b, upstreams) {
			cfg.Targets = append(cfg.Targets, demo.Target{URL: url, Clients: 20})
		}
		if cfg.Targets == nil {
			continue
		}
		began := time.Now()
		r, err := demo.Run(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		ended, used := time.Now(), time.Duration(0)
		arrivals, above, most := 0, 0, ""
		for i, j := range judges {
			_, max, _ := j.Counts()
			most += fmt.Sprintf(" %d", max)
			for _, a := range j.Since(began) {
				arrivals++
				if a.InFlight > stands[i] {
					above++
				}
				if end := a.Use.Ended; !end.IsZero() {
					used += end.Sub(a.Use.Began)
				}
			}
		}
		t.row("%s\t%d\t%d\t%s\t%.1f %%\t%.0f\t%.0f", c.name, arrivals, above, strings.TrimSpace(most),
			100*used.Seconds()/(8*ended.Sub(began).Seconds()), millis(r.Overall.P50), millis(r.Overall.P99))
	}
	b.ReportMetric(0, "ns/op")
}

// leastConn starts three HAProxies with these limits for each server.
func leastConn(b *testing.B, upstreams []string, limits []int) (urls []string) {
	b.Helper()
	for range 3 {
		_, url := startHAProxy(b, upstreams, limits...)
		urls = append(urls, url)
	}
	return urls
}
