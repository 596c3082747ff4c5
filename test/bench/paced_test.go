package bench

import (
	"os/exec"
	"testing"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// BenchmarkPaced compares times of answers where none of the systems has all that it can do: the same
// requests per second for all, 70 % of what kgate answers at most. An answer's time begins when its
// request was due.
func BenchmarkPaced(b *testing.B) {
	t, filled := newTable("Times of answers: 64 clients, 1 KiB at once, 70 % of kgate's most requests per second, median of 7 rounds in turn",
		"system\treq/s\tp50 ms\tp99 ms")
	if filled {
		return
	}
	upstream := startUpstream(b)
	const never = 10_000 // a k that 64 clients do not reach
	kgate := newSystem(b, "one kgate", cluster.Options{Gateways: 1, Name: "paced", K: never, Upstream: upstream})
	systems := []*system{kgate, startProcess(b, "bare ReverseProxy, kgate's heap floor", "reverseproxy", "-heap-floor=32", upstream)}
	if _, err := exec.LookPath("haproxy"); err == nil {
		process, url := startHAProxy(b, []string{upstream}, never)
		systems = append(systems, &system{name: "one HAProxy", process: process, urls: []string{url}})
	}
	for range 3 {
		kgate.round(b)
	}
	rate := .7 * median(kgate.perSecond)
	kgate.perSecond, kgate.p50, kgate.p99 = nil, nil, nil
	for range rounds {
		for _, s := range systems {
			r, err := demo.Run(b.Context(), demo.LoadConfig{
				Targets: []demo.Target{{URL: s.urls[0], Clients: clients, Rate: rate}}, Warmup: warmup, Duration: 3 * window,
			})
			if err != nil {
				b.Fatal(err)
			}
			s.note(b, r.Overall)
		}
	}
	for _, s := range systems {
		t.row("%s\t%.0f\t%.2f\t%.2f", s.name, median(s.perSecond), median(s.p50), median(s.p99))
	}
	b.ReportMetric(0, "ns/op")
}
