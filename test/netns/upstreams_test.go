package netns

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// farm is some upstreams, each with a k of its own, that count.
type farm struct {
	k      []int
	mean   time.Duration // of what a request takes
	judges []*cluster.Judge
	addrs  []string

	mu    sync.Mutex
	waits []map[string][]float64 // by upstream: what those admitted there had waited, in ms, by gateway
}

// newFarm serves upstreams of these ks. Each request takes a random time, of this mean.
func newFarm(t *testing.T, mean time.Duration, listen func() (net.Listener, error), ks ...int) *farm {
	t.Helper()
	f := &farm{k: ks, mean: mean}
	for i := range ks {
		l, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		j, _ := cluster.NewJudgeAt(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			timer := time.NewTimer(time.Duration(min(rand.ExpFloat64(), 8) * float64(mean)))
			defer timer.Stop()
			select {
			case <-timer.C:
				w.Header().Set("Upstream", strconv.Itoa(i))
			case <-r.Context().Done():
			}
		}))
		j.Keep()
		f.judges, f.addrs, f.waits = append(f.judges, j), append(f.addrs, l.Addr().String()), append(f.waits, make(map[string][]float64))
	}
	return f
}

// above counts the arrivals, and those at an upstream that had more than its k then.
func (f *farm) above(since time.Time) (above, all, most int) {
	for i, j := range f.judges {
		for _, a := range j.Since(since) {
			if all++; a.InFlight > f.k[i] {
				above++
				most = max(most, a.InFlight-f.k[i])
			}
		}
	}
	return above, all, most
}

// busy returns the share of the places that was in use from since to until.
func (f *farm) busy(since, until time.Time) float64 {
	used, k := time.Duration(0), 0
	for i, j := range f.judges {
		k += f.k[i]
		for _, a := range j.Since(time.Time{}) {
			begin, end := a.Use.Began, a.Use.Ended
			if end.IsZero() || end.After(until) {
				end = until
			}
			if begin.Before(since) {
				begin = since
			}
			if end.After(begin) {
				used += end.Sub(begin)
			}
		}
	}
	return float64(used) / (float64(k) * float64(until.Sub(since)))
}

var queueTime = regexp.MustCompile(`desc="queue";dur=([0-9.]+)`)

// ask asks once, and sometimes leaves before the answer.
func (f *farm) ask(ctx context.Context, client *http.Client, from, url string) error {
	leaves := rand.IntN(4) == 0
	if leaves {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(2*f.mean))
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		if leaves && ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s", res.Status, res.Header.Get("Kgate-Refusal"))
	}
	if m := queueTime.FindStringSubmatch(strings.Join(res.Header["Server-Timing"], ",")); m != nil {
		i, _ := strconv.Atoi(res.Header.Get("Upstream"))
		ms, _ := strconv.ParseFloat(m[1], 64)
		f.mu.Lock()
		f.waits[i][from] = append(f.waits[i][from], ms)
		f.mu.Unlock()
	}
	return nil
}

// meanWaits returns those of the requests admitted to each upstream, in ms, and forgets them.
func (f *farm) meanWaits() (means []float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, by := range f.waits {
		sum, n := 0.0, 0
		for _, all := range by {
			for _, ms := range all {
				sum += ms
			}
			n += len(all)
		}
		means = append(means, sum/float64(max(1, n)))
		f.waits[i] = make(map[string][]float64)
	}
	return means
}

// TestUpstreams: three gateways, three upstreams of k 2, 2, 4, clients that leave, and gateways that
// are killed, stopped and cut off. No upstream has more than its k, its places are in use while
// nothing is wrong, and those who wait for one wait as long as for another. BenchmarkUpstreams of test/bench
// has other proxies beside it.
func TestUpstreams(t *testing.T) {
	rounds := cluster.Count(t, "KGATE_UPSTREAM_ROUNDS", 0, 30)
	if rounds == 0 {
		cluster.OnlySoak(t, "test/cluster's TestUpstreams has the same without a network")
		rounds = 3
	}
	const (
		mean     = 250 * time.Millisecond // a new connection, which follows one that was broken off, counts less
		gateways = 3
		clients  = 10
		settle   = 8 * time.Second // what is owed has come back
		calm     = 6 * time.Second
	)
	nw := New(t, gateways)
	f := newFarm(t, mean, nw.Listen, 2, 2, 4)
	opt := cluster.Options{Gateways: gateways, Lease: 3 * time.Second, Durable: true, K: 8, Hosts: nw.Hosts, Dial: nw.Dial, Cuts: nw.Cuts}
	for i, addr := range f.addrs {
		opt.Upstreams = append(opt.Upstreams, cluster.Upstream{URL: "http://" + addr, K: f.k[i]})
	}
	c := cluster.Start(t, opt)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: nw.Dial, MaxIdleConnsPerHost: clients}}
	load := cluster.StartLoad(t, c.Gateways, cluster.LoadOptions{
		Clients: clients, Dial: nw.Dial,
		Ask: func(ctx context.Context, g *cluster.Gateway) error { return f.ask(ctx, client, g.Name, g.URL()) },
	})
	var shares []float64
	var apart []float64
	judge := func() {
		cluster.Span(t, settle)
		f.meanWaits()
		since := time.Now()
		cluster.Span(t, calm)
		share, means := f.busy(since, time.Now()), f.meanWaits()
		shares, apart = append(shares, share), append(apart, slices.Max(means)/max(1, slices.Min(means)))
		t.Logf("places busy %.1f %%; mean waits for the upstreams %.0f ms", 100*share, means)
	}
	judge()
	for round := range rounds {
		i := round / 3 % gateways
		switch g := c.Gateways[i]; round % 3 {
		case 0:
			if err := g.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-g.Done()
			cluster.Span(t, time.Second)
			c.Restart(t, i)
		case 1:
			_ = g.Signal(syscall.SIGSTOP)
			cluster.Span(t, 2*opt.Lease)
			_ = g.Signal(syscall.SIGCONT)
		case 2:
			nw.Set(t, Split(Drop, []int{i}, Without(gateways, i))...)
			cluster.Span(t, 2*opt.Lease)
			nw.Heal(t)
		}
		judge()
	}
	load.Stop()
	slices.Sort(shares)
	slices.Sort(apart)
	above, all, _ := f.above(time.Time{})
	t.Logf("%d of %d arrivals above k; places busy while nothing was wrong: median %.1f %%, least %.1f %%; longest mean wait by shortest: median %.2f, most %.2f",
		above, all, 100*shares[len(shares)/2], 100*shares[0], apart[len(apart)/2], apart[len(apart)-1])
	if above > 0 {
		t.Errorf("%d of %d arrivals found more than k", above, all)
	}
	if cluster.Soak() && shares[len(shares)/2] < .98 {
		t.Errorf("places busy %.1f %%", 100*shares[len(shares)/2])
	}
	if cluster.Soak() && apart[len(apart)/2] > 1.1 {
		t.Errorf("the longest mean wait for an upstream is %.2f times the shortest", apart[len(apart)/2])
	}
}
