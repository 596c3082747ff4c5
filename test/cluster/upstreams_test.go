package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// upstreamOfK is one with a k of its own that counts.
type upstreamOfK struct {
	*Judge
	server *http.Server
	addr   string
	k      int
}

func (u *upstreamOfK) url() string { return "http://" + u.addr }

// newUpstreamOfK serves an upstream. Each request takes a random time, of this mean.
func newUpstreamOfK(t *testing.T, k int, mean time.Duration) *upstreamOfK {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstreamOfK{addr: l.Addr().String(), k: k}
	u.Judge, u.server = NewJudgeAt(t, l, u.handler(mean))
	u.Keep()
	return u
}

func (u *upstreamOfK) handler(mean time.Duration) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hold(r, time.Duration(min(rand.ExpFloat64(), 8)*float64(mean)))
	})
}

// startUpstreamsOfK starts three gateways in front of upstreams of these ks.
func startUpstreamsOfK(t *testing.T, opt Options, mean time.Duration, ks ...int) (*Cluster, []*upstreamOfK) {
	t.Helper()
	var all []*upstreamOfK
	for _, k := range ks {
		u := newUpstreamOfK(t, k, mean)
		all = append(all, u)
		opt.K += k
		opt.Upstreams = append(opt.Upstreams, Upstream{u.url(), k})
	}
	return Start(t, opt), all
}

// checkUpstreams fails the test if any upstream had more than its k in flight.
func checkUpstreams(t *testing.T, all []*upstreamOfK) {
	t.Helper()
	for i, u := range all {
		_, most, total := u.Counts()
		over := 0
		for _, a := range u.Since(time.Time{}) {
			if a.InFlight > u.k {
				over++
			}
		}
		t.Logf("upstream %d of k %d: at most %d in flight, %d of %d arrivals above", i+1, u.k, most, over, total)
		if most > u.k {
			t.Errorf("upstream %d of k %d had %d in flight", i+1, u.k, most)
		}
	}
}

// slotsBusy returns the share of the upstreams' slots that was in use from since to until.
func slotsBusy(all []*upstreamOfK, since, until time.Time) float64 {
	used, k := time.Duration(0), 0
	for _, u := range all {
		k += u.k
	}
	for _, had := range slotTime(all, since, until) {
		used += had
	}
	return float64(used) / (float64(k) * float64(until.Sub(since)))
}

// slotTime returns for how long slots of the upstreams were in use meanwhile, by the gateway that was asked.
func slotTime(all []*upstreamOfK, since, until time.Time) map[string]time.Duration {
	had := make(map[string]time.Duration)
	for _, u := range all {
		for _, a := range u.Since(time.Time{}) {
			end := a.Use.Ended
			if end.IsZero() || end.After(until) {
				end = until
			}
			if begin := maxTime(a.Use.Began, since); end.After(begin) {
				had[a.From] += end.Sub(begin)
			}
		}
	}
	return had
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stop ends the upstream as a service is stopped: those that it has begun with are answered.
func (u *upstreamOfK) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := u.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

// start serves again, with the same count.
func (u *upstreamOfK) start(t *testing.T, mean time.Duration) {
	t.Helper()
	l, err := net.Listen("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	u.server = &http.Server{Handler: u.around(u.handler(mean)), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}}
	serveOn(t, u.server, l)
}

// TestUpstreams: three gateways, three upstreams with a k of their own, clients that leave, and
// gateways that are killed or stopped under load: no upstream has more than its k, and those that
// are there are in use.
func TestUpstreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const mean = 60 * time.Millisecond
	c, all := startUpstreamsOfK(t, Options{Durable: true}, mean, 2, 2, 4)
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 10, Leave: true})
	Span(t, time.Second)
	since := time.Now()
	Span(t, 3*time.Second)
	share := slotsBusy(all, since, time.Now())
	t.Logf("slots busy %.1f %%", 100*share)
	if Soak() && share < 0.98 { // else the clients and upstreams wait for the machine
		t.Errorf("slots busy %.1f %%", 100*share)
	}
	for i := range Count(t, "KGATE_UPSTREAM_ROUNDS", 2, 40) {
		g := c.Gateways[i%3]
		if i%2 == 0 {
			if err := g.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-g.Done()
			Span(t, time.Second)
			c.Restart(t, i%3)
		} else {
			_ = g.Signal(syscall.SIGSTOP)
			Span(t, 2*c.opt.Lease)
			_ = g.Signal(syscall.SIGCONT)
		}
		Span(t, 2*time.Second)
	}
	load.Stop()
	checkUpstreams(t, all)
}

// TestUpstreamGone: an upstream is stopped and started again under load. Nobody notices, and the
// places of the others are in use.
func TestUpstreamGone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const mean = 60 * time.Millisecond
	c, all := startUpstreamsOfK(t, Options{Settings: "health: {interval: 500ms}"}, mean, 2, 2, 4)
	c.Causes("upstream is unhealthy", "upstream failed", "upstream fails requests")
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, time.Second)
	for _, u := range all {
		u.stop(t)
		gone := time.Now()
		Span(t, time.Second)
		others := slices.DeleteFunc(slices.Clone(all), func(o *upstreamOfK) bool { return o == u })
		since := time.Now()
		Span(t, 2*time.Second)
		share := slotsBusy(others, since, time.Now())
		t.Logf("one of k %d gone: slots of the others busy %.1f %%", u.k, 100*share)
		if Soak() && share < 0.98 { // else the clients and upstreams wait for the machine
			t.Errorf("slots of the others busy %.1f %%", 100*share)
		}
		u.start(t, mean)
		u.AwaitInFlight(t, fmt.Sprintf("upstream of k %d is back", u.k), time.Now(), u.k, 2*time.Second)
		if n := len(load.Since(gone)); n == 0 {
			t.Error("nobody was served meanwhile")
		}
	}
	load.Stop()
	broken := 0
	for _, a := range load.Since(time.Time{}) {
		if a.Result == "502 Bad Gateway" {
			broken++ // it was written to a connection that the upstream had just closed
		} else if a.Result != OK {
			t.Error(a.Result)
		}
	}
	if t.Logf("%d requests met a connection that was being closed", broken); broken > 8 {
		t.Errorf("%d requests were broken off", broken)
	}
	checkUpstreams(t, all)
}

// TestSetUpstreamK: k of an upstream changes by command under load, one is added and one taken out,
// exactly.
func TestSetUpstreamK(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const (
		busy    = 100 * time.Millisecond
		exactIn = 100 * time.Millisecond
	)
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, busy) })
	var judges []*Judge
	var urls []string
	for range 3 {
		j, _, url := NewJudge(t, slow)
		j.Keep()
		judges, urls = append(judges, j), append(urls, url)
	}
	c := Start(t, Options{K: 4, Upstreams: []Upstream{{urls[0], 2}, {urls[1], 2}}})
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, 4*busy)
	k := []int{2, 2, 0}
	for round, next := range [][2]int{{0, 4}, {1, 1}, {2, 3}, {0, 0}, {0, 2}, {2, 0}} { // of which, and its k
		i, to := next[0], next[1]
		asked := time.Now()
		if _, said, code := run(t, "pool", "set", PoolName, "--upstream", urls[i], "--k", strconv.Itoa(to), "--admin", "http://"+c.Gateways[round%3].Admin); code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		exact := time.Now().Add(timing.Slack() * exactIn)
		if to < k[i] {
			exact = exact.Add(timing.Slack() * busy)
		}
		Span(t, time.Until(exact.Add(6*busy)))
		for u, j := range judges {
			most, after := 0, 0
			for _, a := range j.Since(asked) {
				most = max(most, a.InFlight)
				if a.At.After(exact) {
					after = max(after, a.InFlight)
				}
			}
			want := k[u]
			if u == i {
				want = to
			}
			if most > max(k[u], want) || after != want {
				t.Errorf("round %d: k of upstream %d: %d to %d; at most %d in flight from then on, %d later", round, u, k[u], want, most, after)
			}
		}
		k[i] = to
	}
	load.Stop()
	if text := Refusals(load.Since(time.Time{})); text != "map[]" {
		t.Error(text)
	}
	at := "http://" + c.Gateways[0].Admin
	expect(t, 1, []string{"of which one"}, "pool", "set", PoolName, "--k", "30", "--admin", at)
	expect(t, 1, []string{"the scheme of upstream"}, "pool", "set", PoolName, "--upstream", "10.0.0.1", "--k", "3", "--admin", at)
}
