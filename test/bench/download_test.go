package bench

import (
	"io"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// BenchmarkDownload compares how fast one client gets 512 MiB.
func BenchmarkDownload(b *testing.B) {
	t, filled := newTable("Downloads: one client, 512 MiB, median of 7 rounds in turn", "system\tMiB/s\tof bare")
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
	if _, err := exec.LookPath("haproxy"); err == nil {
		process, url := startHAProxy(b, []string{upstream}, 10)
		systems = append(systems, &system{name: "one HAProxy", process: process, urls: []string{url}})
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
	began := time.Now()
	res, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.Status, err)
	}
	return float64(n) / (1 << 20) / time.Since(began).Seconds()
}
