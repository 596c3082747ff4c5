package bench

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

const (
	rounds  = 7
	clients = 64
	warmup  = 200 * time.Millisecond
	window  = time.Second
)

// system is something that answers requests.
type system struct {
	name    string
	urls    []string
	cluster *cluster.Cluster // nil if it is not kgate
	process *cluster.Process // nil if it is several gateways
	echo    string           // where it sends back what comes, if it does

	perSecond, p50, p99  []float64 // by round; times in milliseconds
	cpu                  []float64 // processor time of process, in microseconds per answer
	sent, batons, inLine []float64 // messages, moves of the baton and requests for a place in line, per admission
	hops                 []float64 // per request for a place in line
}

// startProcess starts a process that logs the address it listens on.
func startProcess(b *testing.B, name, pkg string, args ...string) *system {
	b.Helper()
	p := cluster.StartProcess(b, cluster.Build(b, pkg), args...)
	r, err := p.AwaitRecord("listening")
	if err != nil {
		b.Fatal(err)
	}
	return &system{name: name, process: p, urls: []string{"http://" + r.Text("http") + "/"}, echo: r.Text("echo")}
}

// startUpstream starts an upstream and returns its URL.
func startUpstream(b *testing.B) string {
	b.Helper()
	return startProcess(b, "upstream alone", "upstream").urls[0]
}

func newSystem(b *testing.B, name string, opt cluster.Options) *system {
	b.Helper()
	s := &system{name: name, cluster: cluster.Start(b, opt)}
	for _, g := range s.cluster.Gateways {
		s.urls = append(s.urls, g.URL())
	}
	if len(s.cluster.Gateways) == 1 {
		s.process = s.cluster.Gateways[0].Process
	}
	return s
}

// round loads the system once, its clients spread evenly over its addresses.
func (s *system) round(b *testing.B) {
	b.Helper()
	cfg := demo.LoadConfig{Warmup: warmup, Duration: window}
	for i, url := range s.urls {
		n := clients / len(s.urls)
		if i < clients%len(s.urls) {
			n++
		}
		cfg.Targets = append(cfg.Targets, demo.Target{URL: url, Clients: n})
	}
	var used time.Duration
	cfg.Opened = func() { used = -s.processorTime(b) }
	cfg.Closed = func() { used += s.processorTime(b) }
	before := s.metrics(b)
	r, err := demo.Run(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	s.note(b, r.Overall)
	s.cpu = append(s.cpu, float64(used.Microseconds())/(r.Overall.PerSecond*window.Seconds()))
	s.count(s.metrics(b).Since(before))
}

// note takes in what the clients of a round saw.
func (s *system) note(b *testing.B, r demo.Summary) {
	b.Helper()
	if r.Errors > 0 {
		b.Errorf("%s: failed by status: %v", s.name, r.Failed)
	}
	s.perSecond = append(s.perSecond, r.PerSecond)
	s.p50 = append(s.p50, millis(r.P50))
	s.p99 = append(s.p99, millis(r.P99))
}

// processorTime returns how much the system's process has used so far.
func (s *system) processorTime(b *testing.B) time.Duration {
	if s.process == nil {
		return 0
	}
	used, err := s.process.ProcessorTime()
	if err != nil {
		b.Error(err)
	}
	return used
}

func (s *system) metrics(b *testing.B) cluster.Metrics {
	b.Helper()
	if s.cluster == nil {
		return nil
	}
	m, err := s.cluster.Metrics(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// count takes the algorithm's cost out of what a round has added to the metrics.
func (s *system) count(m cluster.Metrics) {
	admitted := m.Sum("kgate_wait_time_seconds_count", `outcome="admitted"`)
	if admitted == 0 {
		return
	}
	asked := m.Sum("kgate_request_hops_count")
	s.sent = append(s.sent, m.Sum("kgate_messages_total", `direction="sent"`)/admitted)
	s.batons = append(s.batons, m.Sum("kgate_baton_moves_total")/admitted)
	s.inLine = append(s.inLine, asked/admitted)
	if asked > 0 {
		s.hops = append(s.hops, m.Sum("kgate_request_hops_sum")/asked)
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// BenchmarkThroughput compares how many requests per second get through, with an
// upstream that answers 1 KiB at once. A busy machine changes the processor time per
// answer less than it does the throughput. The proxies but HAProxy have kgate's heap
// floor, unless told otherwise.
func BenchmarkThroughput(b *testing.B) {
	t, filled := newTable("Requests per second: 64 clients, answers of 1 KiB at once, median of 7 rounds in turn",
		"system\treq/s\tof bare\tCPU µs/answer\tof bare\tp50 ms\tp99 ms\tmessages/adm.\tbaton moves/adm.\tasks/adm.\thops/ask")
	if filled {
		return
	}
	alone := startProcess(b, "upstream alone", "upstream")
	upstream := alone.urls[0]
	const (
		never = 10_000 // a k that 64 clients do not reach
		floor = "-heap-floor=32"
	)
	bare := startProcess(b, "bare ReverseProxy", "reverseproxy", floor, upstream)
	kgate := newSystem(b, "one kgate, k never reached", cluster.Options{Gateways: 1, Name: "alone", K: never, Upstream: upstream})
	systems := []*system{
		alone,
		startProcess(b, "bare ReverseProxy without the floor", "reverseproxy", upstream),
		bare,
		kgate,
		startProcess(b, "the least on net/http's server", "reverseproxy", floor, "-handler=least", upstream),
		startProcess(b, "the least on Go's sockets", "reverseproxy", floor, "-handler=sockets", upstream),
		startProcess(b, "net/http's server answers by itself", "reverseproxy", floor, "-handler=none", upstream),
		newSystem(b, "three kgates, k never reached", cluster.Options{Name: "wide", K: never, Upstream: upstream}),
		newSystem(b, "three kgates, k = 8, contended", cluster.Options{Name: "narrow", K: 8, Upstream: upstream}),
		newSystem(b, "one kgate, k = 8, contended", cluster.Options{Gateways: 1, Name: "line", K: 8, Upstream: upstream}),
	}
	if _, err := exec.LookPath("haproxy"); err == nil {
		process, url := startHAProxy(b, []string{upstream}, never)
		systems = append(systems, &system{name: "one HAProxy", process: process, urls: []string{url}})
	}
	for range rounds {
		for _, s := range systems {
			s.round(b)
		}
	}
	for _, s := range systems {
		used := "\t"
		if s.process != nil {
			used = fmt.Sprintf("%.1f\t%.0f %%", median(s.cpu), median(percent(s.cpu, bare.cpu)))
		}
		cost := "\t\t\t"
		if s.cluster != nil && len(s.urls) > 1 {
			cost = ratio(s.sent) + "\t" + ratio(s.batons) + "\t" + ratio(s.inLine) + "\t" + ratio(s.hops)
		}
		t.row("%s\t%.0f\t%.0f %%\t%s\t%.2f\t%.2f\t%s", s.name, median(s.perSecond), median(percent(s.perSecond, bare.perSecond)),
			used, median(s.p50), median(s.p99), cost)
	}
	t.note("shares are of the bare ReverseProxy in the same round (medians)")
	b.ReportMetric(median(percent(kgate.perSecond, bare.perSecond)), "%of-bare")
	b.ReportMetric(median(percent(kgate.cpu, bare.cpu)), "%CPU-of-bare")
	b.ReportMetric(median(kgate.perSecond), "req/s")
	b.ReportMetric(0, "ns/op")
}

// percent returns what part of base each value is, round by round: nearer to the truth
// than two medians, since the machine may have been busy with something else.
func percent(values, base []float64) []float64 {
	shares := make([]float64, len(values))
	for i := range values {
		shares[i] = 100 * values[i] / base[i]
	}
	return shares
}
