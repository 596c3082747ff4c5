package bench

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

func ratio(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(values))
}

// queueTime returns how long a request waited, in milliseconds, as the gateway
// tells in Server-Timing.
func queueTime(h http.Header) (float64, error) {
	_, rest, ok := strings.Cut(h.Get("Server-Timing"), ";dur=")
	if !ok {
		return 0, fmt.Errorf("no duration in Server-Timing %q", h.Get("Server-Timing"))
	}
	return strconv.ParseFloat(rest, 64)
}

func get(b *testing.B, url string) float64 {
	b.Helper()
	res, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.Status, err)
	}
	waited, err := queueTime(res.Header)
	if err != nil {
		b.Fatal(err)
	}
	return waited
}

// BenchmarkNetworkAdmission measures one admission at a time: k is 1, and each
// request goes to another gateway than the last, so that baton and token have to
// come from there. Without a pause a gateway is asked again before its
// ask_interval is over, and waits for that too; with one only the network counts.
func BenchmarkNetworkAdmission(b *testing.B) {
	t, filled := newTable("One admission at a time, k = 1: time in the queue",
		"requests go to\tp50 ms\tp90 ms\tp99 ms\tmax ms\tmessages/adm.\tbaton moves/adm.")
	if filled {
		return
	}
	c := cluster.Start(b, cluster.Options{K: 1, Upstream: startUpstream(b)})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, way := range []struct {
		name     string
		gateways int
		pause    time.Duration
	}{
		{"one gateway", 1, 0},
		{"two gateways in turn", 2, 0},
		{"three gateways in turn", 3, 0},
		{"three in turn, 10 ms apart", 3, 10 * time.Millisecond},
	} {
		const warm = 200
		requests := 4000
		if way.pause > 0 {
			requests = 1000
		}
		var waits []float64
		before := metrics(b, c)
		for i := range warm + requests {
			time.Sleep(way.pause) // the clients' pace
			waited := get(b, c.Gateways[i%way.gateways].URL())
			if i >= warm {
				waits = append(waits, waited)
			}
		}
		m := metrics(b, c).Since(before)
		slices.Sort(waits)
		at := func(q float64) float64 { return waits[int(q*float64(len(waits)-1))] }
		t.row("%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.2f", way.name, at(.5), at(.9), at(.99), at(1),
			m.Sum("kgate_messages_total", `direction="sent"`)/float64(warm+requests), m.Sum("kgate_baton_moves_total")/float64(warm+requests))
		b.ReportMetric(at(.5), "p50-ms")
		b.ReportMetric(at(.99), "p99-ms")
	}
	t.note("aim: p50 of an admission that needs the network <= 1 ms")
	b.ReportMetric(0, "ns/op")
}

func metrics(b *testing.B, c *cluster.Cluster) cluster.Metrics {
	b.Helper()
	m, err := c.Metrics(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m
}
