package plan

import (
	"testing"
	"time"

	"github.com/kgate/kgate/lab/workload"
	"github.com/kgate/kgate/test/cluster"
)

const (
	gateways = 3
	// loopback is what a message between two gateways on one machine takes, about.
	loopback = 100 * time.Microsecond
	warmup   = 3 * time.Second
)

// reality is a load to be predicted.
type reality struct {
	name string
	k    int
	rate float64
	mean time.Duration
	scv  float64
}

var realities = []reality{
	{"exponential, load .7", 6, 42, 100 * time.Millisecond, 1},
	{"log-normal, SCV 4, load .75", 12, 90, 100 * time.Millisecond, 4},
	{"constant, load .8", 3, 40, 60 * time.Millisecond, 0},
}

func (l reality) workload(hold time.Duration) workload.Config {
	return workload.Config{Open: &workload.Open{Rate: l.rate}, Hold: workload.SCV(hold, l.scv)}
}

// outcome is measured over predicted waits.
type outcome struct {
	planMean, planP99 float64 // what kgate plan says, of all possible arrivals
	sameMean, sameP99 float64 // the lab under the very arrivals and holds of the run
}

// BenchmarkPlanAgainstReality prints, for three loads, what real gateways did over
// what was predicted: the median over the runs. A run has a few thousand requests,
// so chance alone moves its mean by a tenth or two from that of all possible runs,
// which is what a plan says; the lab under the same arrivals has no such excuse.
//
// KGATE_PLAN_RUNS and KGATE_PLAN_SECONDS change the number of runs (5) and their
// length (60).
func BenchmarkPlanAgainstReality(b *testing.B) {
	runs, seconds := setting(b, "KGATE_PLAN_RUNS", 5), setting(b, "KGATE_PLAN_SECONDS", 60)
	for _, load := range realities {
		b.Run(load.name, func(b *testing.B) {
			var all []outcome
			for b.Loop() {
				for i := range runs {
					all = append(all, load.compare(b, uint64(i+1), time.Duration(seconds)*time.Second))
				}
			}
			b.ReportMetric(median(all, func(o outcome) float64 { return o.planMean }), "mean/plan")
			b.ReportMetric(median(all, func(o outcome) float64 { return o.planP99 }), "p99/plan")
			b.ReportMetric(median(all, func(o outcome) float64 { return o.sameMean }), "mean/lab")
			b.ReportMetric(median(all, func(o outcome) float64 { return o.sameP99 }), "p99/lab")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestComparisonWorks runs one load once and shortly: nobody fails, k holds, and
// there is a prediction. How near it comes is the benchmark's to tell: in so short
// a time it depends on what else the machine does.
func TestComparisonWorks(t *testing.T) {
	realities[0].compare(t, 1, 4*time.Second)
}

// compare runs the load once.
func (l reality) compare(tb testing.TB, seed uint64, length time.Duration) outcome {
	tb.Helper()
	upstream, url := serveUpstream(tb)
	c := cluster.Start(tb, cluster.Options{Gateways: gateways, K: l.k, Upstream: url})
	s := stream{source: l.source(seed), warmup: warmup, length: length}
	for _, g := range c.Gateways {
		s.urls = append(s.urls, g.URL())
	}
	before, err := c.Metrics(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	got, err := s.run(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	after, err := c.Metrics(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, g := range c.Gateways {
		if _, err := g.Stop(); err != nil {
			tb.Fatal(err)
		}
	}
	if got.failed > 0 || upstream.most > l.k {
		tb.Fatalf("%d requests failed, %d in flight with k = %d", got.failed, upstream.most, l.k)
	}
	m := after.Since(before)
	hold := time.Duration(m.Sum("kgate_hold_time_seconds_sum") / m.Sum("kgate_hold_time_seconds_count") * float64(time.Second))
	drawn := l.drawn(seed, length)
	// The gateways' holds are the drawn ones and what the proxy adds.
	stretched := time.Duration(float64(l.mean) * hold.Seconds() / drawn.Seconds())
	planned, same := l.plan(tb, stretched), l.same(tb, seed, length, stretched)
	o := outcome{
		got.mean().Seconds() / planned.Mean.Mean, got.quantile(.99).Seconds() / planned.P99.Mean,
		got.mean().Seconds() / same.Wait.Mean().Seconds(), got.quantile(.99).Seconds() / same.Wait.Quantile(.99).Seconds(),
	}
	tb.Logf("%s: %d requests, hold %v (drawn %v), %d recoveries; mean wait %v, plan %.4gs (%.2f), lab %v (%.2f); p99 %v, plan %.4gs (%.2f), lab %v (%.2f)",
		l.name, len(got.waits), hold, drawn, int(m.Sum("kgate_recoveries_total")), got.mean(), planned.Mean.Mean, o.planMean, same.Wait.Mean(), o.sameMean,
		got.quantile(.99), planned.P99.Mean, o.planP99, same.Wait.Quantile(.99), o.sameP99)
	return o
}
