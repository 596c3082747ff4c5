package bench

import (
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

	perSecond, p50, p99  []float64 // by round; times in milliseconds
	sent, batons, inLine []float64 // messages, moves of the baton and requests for a place in line, per admission
	hops                 []float64 // per request for a place in line
}

// startProcess starts a process that logs the address it listens on, and returns
// its URL.
func startProcess(b *testing.B, pkg string, args ...string) string {
	b.Helper()
	p := cluster.StartProcess(b, cluster.Build(b, pkg), args...)
	r, err := p.AwaitRecord("listening")
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + r.Text("http") + "/"
}

func newSystem(b *testing.B, name string, opt cluster.Options) *system {
	b.Helper()
	s := &system{name: name, cluster: cluster.Start(b, opt)}
	for _, g := range s.cluster.Gateways {
		s.urls = append(s.urls, g.URL())
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
	before := s.metrics(b)
	r, err := demo.Run(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	if r.Overall.Errors() > 0 {
		b.Errorf("%s: failed by status: %v", s.name, r.Overall.Failed)
	}
	s.perSecond = append(s.perSecond, r.Overall.PerSecond)
	s.p50 = append(s.p50, millis(r.Overall.Latency.P50))
	s.p99 = append(s.p99, millis(r.Overall.Latency.P99))
	s.count(s.metrics(b).Since(before))
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
// upstream that answers 1 KiB at once.
func BenchmarkThroughput(b *testing.B) {
	t, filled := newTable("Requests per second: 64 clients, answers of 1 KiB at once, median of 7 rounds in turn",
		"system\treq/s\tof bare\tp50 ms\tp99 ms\tmessages/adm.\tbaton moves/adm.\tasks/adm.\thops/ask")
	if filled {
		return
	}
	upstream := startProcess(b, "upstream")
	const never = 10_000 // a k that 64 clients do not reach
	bare := &system{name: "bare ReverseProxy", urls: []string{startProcess(b, "reverseproxy", upstream)}}
	alone := newSystem(b, "one kgate, k never reached", cluster.Options{Gateways: 1, Name: "alone", K: never, Upstream: upstream})
	// What kgate's heap floor gives, the bare proxy can have too.
	floored := &system{name: "bare ReverseProxy, kgate's heap floor", urls: []string{startProcess(b, "reverseproxy", upstream, "32")}}
	systems := []*system{
		{name: "upstream alone", urls: []string{upstream}},
		bare,
		alone,
		floored,
		newSystem(b, "three kgates, k never reached", cluster.Options{Name: "wide", K: never, Upstream: upstream}),
		newSystem(b, "three kgates, k = 8, contended", cluster.Options{Name: "narrow", K: 8, Upstream: upstream}),
	}
	if _, err := exec.LookPath("haproxy"); err == nil {
		systems = append(systems, &system{name: "one HAProxy", urls: []string{startHAProxy(b, upstream[:len(upstream)-1], never)}})
	}
	for range rounds {
		for _, s := range systems {
			s.round(b)
		}
	}
	base := median(bare.perSecond)
	for _, s := range systems {
		perSecond := median(s.perSecond)
		cost := "\t\t\t"
		if len(s.sent) > 0 && median(s.sent) > 0 {
			cost = ratio(s.sent) + "\t" + ratio(s.batons) + "\t" + ratio(s.inLine) + "\t" + ratio(s.hops)
		}
		t.row("%s\t%.0f\t%.0f %%\t%.2f\t%.2f\t%s", s.name, perSecond, 100*perSecond/base, median(s.p50), median(s.p99), cost)
	}
	// Each round of kgate against the round of the bare proxy right before it:
	// nearer to the truth than two medians.
	var pairs, flooredPairs []float64
	for i := range bare.perSecond {
		pairs = append(pairs, 100*alone.perSecond[i]/bare.perSecond[i])
		flooredPairs = append(flooredPairs, 100*alone.perSecond[i]/floored.perSecond[i])
	}
	t.note("one kgate reaches %.0f %% of the bare ReverseProxy, round by round (median; aim: 90 %%), %.0f %% of one with the same heap floor",
		median(pairs), median(flooredPairs))
	b.ReportMetric(median(pairs), "%of-bare")
	b.ReportMetric(median(alone.perSecond), "req/s")
	b.ReportMetric(0, "ns/op")
}
