package bench

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// BenchmarkDownload compares how fast one client gets 64 MiB.
func BenchmarkDownload(b *testing.B) {
	t, filled := newTable("Downloads: one client, 64 MiB each, median of 7 rounds of 8 in turn", "system\tMiB/s\tof bare")
	if filled {
		return
	}
	alone := startProcess(b, "upstream alone", "upstream")
	upstream := alone.urls[0]
	systems := []*system{
		alone,
		startProcess(b, "bare ReverseProxy, kgate's heap floor", "reverseproxy", "-heap-floor=32", upstream),
		newSystem(b, "one kgate", cluster.Options{Gateways: 1, Name: "large", K: 10, Upstream: upstream}),
	}
	var pairs []float64
	for n := range rounds {
		for _, s := range systems {
			s.perSecond = append(s.perSecond, download(b, s.urls[0]+"large"))
		}
		pairs = append(pairs, 100*systems[2].perSecond[n]/systems[1].perSecond[n])
	}
	for _, s := range systems {
		t.row("%s\t%.0f\t%.0f %%", s.name, median(s.perSecond), 100*median(s.perSecond)/median(systems[1].perSecond))
	}
	t.note("one kgate reaches %.0f %% of the bare ReverseProxy, round by round (median)", median(pairs))
	b.ReportMetric(median(pairs), "%of-bare")
	b.ReportMetric(0, "ns/op")
}

// download returns how many MiB come in a second.
func download(b *testing.B, url string) float64 {
	b.Helper()
	const times = 8
	began, total := time.Now(), int64(0)
	for range times {
		res, err := http.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res.Status, err)
		}
		total += n
	}
	return float64(total) / (1 << 20) / time.Since(began).Seconds()
}
