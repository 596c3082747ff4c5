package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/test/cluster"
)

// uncounted are the places that make a kgate whose requests and messages nobody
// counts or times.
var uncounted = []mutant.Change{
	{
		File: "../../telemetry/metrics.go",
		Old:  "func (m *Metrics) Pool(name string) *Pool {\n", New: "func (m *Metrics) Pool(name string) *Pool {\n\treturn nil\n",
	},
	{File: "../../telemetry/metrics.go", Old: "m.batchSize.Observe(float64(n))"},
	{File: "../../telemetry/metrics.go", Old: "m.hops.Observe(float64(n))"},
}

// BenchmarkTelemetry compares one kgate with one that counts nothing, and with
// ones that trace, side by side.
func BenchmarkTelemetry(b *testing.B) {
	t, filled := newTable("What metrics and traces cost one kgate: median of 15 rounds in turn",
		"system\treq/s\tp50 ms\tp99 ms\tCPU µs/request\treq/s of the first\tCPU of the first")
	if filled {
		return
	}
	// The collector takes everything and looks at nothing.
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	upstream := startUpstream(b)
	opt := func(name, telemetry string) cluster.Options {
		return cluster.Options{Gateways: 1, Name: name, K: 10_000, Upstream: upstream, Telemetry: telemetry}
	}
	bare := opt("uncounted", "")
	bare.Binary = buildChanged(b, uncounted...)
	traced := "otlp_endpoint: '" + collector.URL + "', sample_ratio: "
	systems := []*system{
		newSystem(b, "no metrics", bare),
		newSystem(b, "metrics", opt("counted", "")),
		newSystem(b, "metrics, traces on, none sampled", opt("none", traced+"0")),
		newSystem(b, "metrics, 1 % of the requests sampled", opt("few", traced+"0.01")),
		newSystem(b, "metrics, every request sampled", opt("all", traced+"1")),
	}
	const telemetryRounds = 15
	for n := range telemetryRounds {
		for j := range systems {
			i := j
			if n%2 == 1 { // there and back: nobody always follows the same one
				i = len(systems) - 1 - j
			}
			systems[i].round(b)
		}
	}
	base := systems[0]
	for _, s := range systems {
		t.row("%s\t%.0f\t%.2f\t%.2f\t%.1f\t%.1f %%\t%.1f %%", s.name, median(s.perSecond), median(s.p50), median(s.p99), median(s.cpu),
			median(percent(s.perSecond, base.perSecond)), median(percent(s.cpu, base.cpu)))
	}
	t.note("round by round (median; aim: metrics and unsampled traces within 2 %%)")
	b.ReportMetric(median(percent(systems[1].perSecond, base.perSecond)), "%of-uncounted")
	b.ReportMetric(0, "ns/op")
}
