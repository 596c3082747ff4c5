package plan

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kgate/kgate/demo"
	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/plan"
	"github.com/kgate/kgate/test/cluster"
)

// reality is a load to be predicted.
type reality struct {
	name string
	k    int
	rate float64
	hold demo.Distribution
}

var realities = []reality{
	{"exponential, load .7", 6, 84, demo.Distribution{Mean: 50 * time.Millisecond, SCV: 1}},
	{"log-normal, SCV 4, load .65", 12, 130, demo.Distribution{Mean: 60 * time.Millisecond, SCV: 4}},
	{"constant, load .75", 3, 56, demo.Distribution{Mean: 40 * time.Millisecond}},
}

// loopback is what a message between two gateways on one machine takes, about.
const loopback = "constant:100us"

// BenchmarkPlanAgainstReality prints, for three loads, what real gateways did and
// what was predicted. Single runs are at the mercy of chance: the result is the
// median over the runs of measured over predicted.
//
// KGATE_PLAN_RUNS and KGATE_PLAN_SECONDS change the number of runs (5) and their
// length (60).
func BenchmarkPlanAgainstReality(b *testing.B) {
	runs, seconds := setting(b, "KGATE_PLAN_RUNS", 5), setting(b, "KGATE_PLAN_SECONDS", 60)
	for _, load := range realities {
		b.Run(load.name, func(b *testing.B) {
			var means, tails []float64
			for b.Loop() {
				for i := range runs {
					mean, tail := load.compare(b, uint64(i+1), time.Duration(seconds)*time.Second)
					means, tails = append(means, mean), append(tails, tail)
				}
			}
			b.ReportMetric(median(means), "mean-measured/predicted")
			b.ReportMetric(median(tails), "p99-measured/predicted")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestComparisonWorks runs one load once and shortly: nobody fails, k holds, and
// there is a prediction. How near it comes, chance and whatever else the machine
// does decide in so short a time; that is the benchmark's to tell.
func TestComparisonWorks(t *testing.T) {
	realities[0].compare(t, 1, 4*time.Second)
}

// compare runs the load once and returns measured over predicted mean and p99.
func (l reality) compare(tb testing.TB, seed uint64, length time.Duration) (mean, p99 float64) {
	tb.Helper()
	upstream, url := cluster.ServeUpstream(tb, demo.UpstreamConfig{Hold: l.hold, Seed: seed, K: l.k})
	c := cluster.Start(tb, cluster.Options{K: l.k, Upstream: url})
	s := stream{rate: l.rate, seed: seed, warmup: 2 * time.Second, length: length}
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
	if most := upstream.Stats().Max; got.failed > 0 || most > l.k {
		tb.Fatalf("%d requests failed, %d in flight with k = %d", got.failed, most, l.k)
	}
	m := after.Since(before)
	hold := m.Sum("kgate_hold_time_seconds_sum") / m.Sum("kgate_hold_time_seconds_count")
	predicted := l.predict(tb, got.rate, hold)
	mean = got.mean().Seconds() / predicted.Mean.Mean
	p99 = got.quantile(.99).Seconds() / predicted.P99.Mean
	tb.Logf("%s: %d recoveries, %.1f messages per admission", l.name, int(m.Sum("kgate_recoveries_total")), m.Sum("kgate_messages_total", `direction="sent"`)/m.Sum("kgate_hold_time_seconds_count"))
	tb.Logf("%s: %.1f/s, hold %.2f ms; mean %.2f ms, predicted %.2f (%.2f); p99 %.2f ms, predicted %.2f (%.2f)", l.name, got.rate, hold*1000,
		got.mean().Seconds()*1000, predicted.Mean.Mean*1000, mean, got.quantile(.99).Seconds()*1000, predicted.P99.Mean*1000, p99)
	return mean, p99
}

func (l reality) predict(tb testing.TB, rate, hold float64) plan.Answer {
	tb.Helper()
	latency, err := experiment.ParseLatency(loopback)
	if err != nil {
		tb.Fatal(err)
	}
	answers, err := plan.Question{
		K: l.k, Gateways: 3, Rate: rate, HoldMean: time.Duration(hold * float64(time.Second)), HoldSCV: l.hold.SCV, Latency: latency,
	}.Compare(tb.Context())
	if err != nil || answers[0].Unstable != "" {
		tb.Fatal(fmt.Errorf("%s: %w", answers[0].Unstable, err))
	}
	return answers[0]
}

func setting(tb testing.TB, variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("%s=%q is no number", variable, text)
	}
	return n
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
