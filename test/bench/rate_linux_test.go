package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

const (
	capped    = 50 << 20 // bytes per second that all proxies together are to move
	transfers = 12       // at most, at a time
	fileSize  = 20 << 20
)

// haproxiesWithRate starts three HAProxies, each of which moves so many bytes per second for all of its
// clients together.
func haproxiesWithRate(limit int) func(*testing.B, string) []string {
	return func(b *testing.B, upstream string) (urls []string) {
		b.Helper()
		for range 3 {
			urls = append(urls, runProxy(b, func(addr, file string) string {
				return fmt.Sprintf(`global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen files
  bind %s
  stick-table type integer size 1 expire 1h store bytes_out_rate(1s)
  filter bwlim-out all limit %d key dst_port
  http-response set-bandwidth-limit all
  server upstream %s
`, addr, limit, strings.TrimPrefix(upstream, "http://"))
			}, "haproxy", "-db", "-q", "-f"))
		}
		return urls
	}
}

// nginxesWithRate starts three nginx, each of which moves so many bytes per second for each
// request.
func nginxesWithRate(each int) func(*testing.B, string) []string {
	return func(b *testing.B, upstream string) (urls []string) {
		b.Helper()
		for range 3 {
			urls = append(urls, runProxy(b, func(addr, file string) string {
				var temp strings.Builder
				for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
					fmt.Fprintf(&temp, "  %s_temp_path %s_%s;\n", kind, file, kind)
				}
				return fmt.Sprintf(`daemon off;
master_process off;
pid %s.pid;
error_log stderr;
events { worker_connections 200; }
http {
  access_log off;
%s  server {
    listen %s;
    limit_rate %d;
    location / { proxy_pass %s; }
  }
}
`, file, temp.String(), addr, each, upstream)
			}, "nginx", "-e", "stderr", "-c"))
		}
		return urls
	}
}

// runProxy starts a program with a configuration file, and returns its URL.
func runProxy(b *testing.B, config func(addr, file string) string, program string, args ...string) (url string) {
	b.Helper()
	addr, file := cluster.ReservePort(b), filepath.Join(b.TempDir(), "conf")
	if err := os.WriteFile(file, []byte(config(addr, file)), 0o600); err != nil {
		b.Fatal(err)
	}
	cluster.StartProcess(b, program, append(args, file)...)
	if err := cluster.AwaitListening(b.Context(), addr); err != nil {
		b.Fatal(err)
	}
	return "http://" + addr + "/"
}

// canLimit reports whether the HAProxy here has bwlim: from 2.7 on.
func canLimit() bool {
	out, err := exec.Command("haproxy", "-v").Output()
	version := regexp.MustCompile(`version (\d+)\.(\d+)`).FindSubmatch(out)
	if err != nil || version == nil {
		return false
	}
	major, _ := strconv.Atoi(string(version[1]))
	minor, _ := strconv.Atoi(string(version[2]))
	return major > 2 || major == 2 && minor >= 7
}

// BenchmarkRate compares what three proxies make of a rate for all of them together: how
// much each of them moves, and how much goes over the upstream's line in a second.
func BenchmarkRate(b *testing.B) {
	t, filled := newTable("Three proxies, 50 MiB/s in all: downloads of 20 MiB for 6 s, after 3 s",
		"system\tdownloads\tMiB/s to clients\tsum\tof the rate\tmost from the upstream in 1 s")
	if filled {
		return
	}
	files := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(fileSize))
		_, _ = io.CopyN(w, zeros{}, fileSize)
	})
	contenders := []contender{
		{"three kgates, rate 50 MiB/s", func(b *testing.B, upstream string) []string {
			b.Helper()
			c := cluster.Start(b, cluster.Options{K: 1, Upstream: upstream, Pools: []cluster.Pool{
				{Name: "files", K: transfers, Upstream: upstream, Settings: "rate: {down: 50MiB/s}"},
			}})
			var urls []string
			for _, g := range c.Gateways {
				urls = append(urls, g.URL()+"files/")
			}
			return urls
		}},
	}
	if canLimit() {
		contenders = append(contenders,
			contender{"three HAProxies, bwlim-out 50 MiB/s each", haproxiesWithRate(capped)},
			contender{"three HAProxies, bwlim-out a third each", haproxiesWithRate(capped / 3)})
	} else {
		t.note("HAProxy is not here, or older than 2.7: it has no bwlim")
	}
	if _, err := exec.LookPath("nginx"); err == nil {
		contenders = append(contenders, contender{"three nginx, limit_rate a twelfth for each request", nginxesWithRate(capped / transfers)})
	} else {
		t.note("nginx is not here (Debian package nginx-light)")
	}
	for _, split := range [][]int{{4, 4, 4}, {10, 1, 1}, {1, 0, 0}, {20, 20, 20}} {
		for _, c := range contenders {
			judge, upstream := cluster.NewByteJudge(b, files)
			t.rows = append(t.rows, rateRow(b, c.name, judge, c.urls(b, upstream), split))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// rateRow has so many downloads at each proxy, and returns the row of the table.
func rateRow(b *testing.B, name string, judge *cluster.ByteJudge, urls []string, split []int) string {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var clients sync.WaitGroup
	got := make([]atomic.Int64, len(urls))
	for i, url := range urls {
		for range split[i] {
			clients.Go(func() {
				for ctx.Err() == nil {
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
					if res, err := http.DefaultClient.Do(req); err == nil {
						_, _ = io.Copy(counter{&got[i]}, res.Body)
						_ = res.Body.Close()
					}
				}
			})
		}
	}
	cluster.Span(b, 3*time.Second)
	var before []int64
	for i := range got {
		before = append(before, got[i].Load())
	}
	began := time.Now()
	sent := []cluster.Bytes{judge.Now()}
	for time.Since(began) < 6*time.Second {
		cluster.Span(b, 20*time.Millisecond)
		sent = append(sent, judge.Now())
	}
	took, each, sum := time.Since(began).Seconds(), []string(nil), 0.0
	for i := range got {
		n := float64(got[i].Load()-before[i]) / took / (1 << 20)
		each, sum = append(each, fmt.Sprintf("%.1f", n)), sum+n
	}
	cancel()
	clients.Wait()
	most, from := int64(0), 0
	for _, s := range sent {
		for s.At.Sub(sent[from].At) > time.Second {
			from++
		}
		most = max(most, s.Down-sent[from].Down)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%.1f\t%.0f %%\t%.1f MiB", name, strings.Trim(strings.ReplaceAll(fmt.Sprint(split), " ", " / "), "[]"),
		strings.Join(each, " / "), sum, 100*sum*(1<<20)/capped, float64(most)/(1<<20))
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
