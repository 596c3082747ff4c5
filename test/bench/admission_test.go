package bench

import (
	"fmt"
	"io"
	"net"
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
		"requests go to\tp50 ms\tp90 ms\tp99 ms\tmax ms\tbyte ms\tp50 in bytes\tmessages/adm.\tbaton moves/adm.")
	if filled {
		return
	}
	upstream := startProcess(b, "upstream", "upstream")
	c := cluster.Start(b, cluster.Options{K: 1, Upstream: upstream.urls[0]})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	asks := func(gateways int) func(int) float64 {
		return func(i int) float64 { return get(b, c.Gateways[i%gateways].URL()) }
	}
	byteAtATime := echoes(b, upstream.echo)
	ways := []*pacedWay{
		{name: "one gateway", once: asks(1)},
		{name: "two gateways in turn", once: asks(2)},
		{name: "three gateways in turn", once: asks(3)},
		{name: "three in turn, 10 ms apart", once: asks(3), pause: 10 * time.Millisecond},
	}
	const rounds = 4 // in turn, for the machine has other work at times
	for range rounds {
		for _, w := range ways {
			w.round(b, c, byteAtATime)
		}
	}
	for _, w := range ways {
		slices.Sort(w.took)
		slices.Sort(w.trips)
		n := float64(rounds * w.requests())
		trip := w.trips[len(w.trips)/2]
		t.row("%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%.2f", w.name, w.at(.5), w.at(.9), w.at(.99), w.at(1), trip, w.at(.5)/trip, w.messages/n, w.batons/n)
	}
	t.note("byte: median time of a byte there and back between two processes, one before each request")
	last := ways[len(ways)-1]
	b.ReportMetric(last.at(.5)/last.trips[len(last.trips)/2], "trips")
	b.ReportMetric(0, "ns/op")
}

// pacedWay is something done again and again, one at a time.
type pacedWay struct {
	name  string
	once  func(i int) float64 // returns how long it took, in milliseconds
	pause time.Duration       // before each

	took, trips      []float64
	messages, batons float64
}

func (w *pacedWay) requests() int {
	if w.pause > 0 {
		return 250
	}
	return 1000
}

// round takes a byte's way before each request, so that both have the same pace.
func (w *pacedWay) round(b *testing.B, c *cluster.Cluster, trip func() float64) {
	const warm = 50
	for i := range warm {
		time.Sleep(w.pause)
		trip()
		w.once(i)
	}
	before := metrics(b, c)
	for i := range w.requests() {
		time.Sleep(w.pause)
		w.trips = append(w.trips, trip())
		time.Sleep(w.pause)
		w.took = append(w.took, w.once(i))
	}
	m := metrics(b, c).Since(before)
	w.messages += m.Sum("kgate_messages_total", `direction="sent"`)
	w.batons += m.Sum("kgate_baton_moves_total")
}

func (w *pacedWay) at(q float64) float64 { return w.took[int(q*float64(len(w.took)-1))] }

// echoes returns what sends a byte to an echo and waits until it is back.
func echoes(b *testing.B, addr string) func() float64 {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return func() float64 {
		sent, one := time.Now(), []byte{1}
		if _, err := conn.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			b.Fatal(err)
		}
		return millis(time.Since(sent))
	}
}

func metrics(b *testing.B, c *cluster.Cluster) cluster.Metrics {
	b.Helper()
	m, err := c.Metrics(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m
}
