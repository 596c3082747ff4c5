package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

// from returns a client whose connections come from a loopback address of its
// own.
func from(t *testing.T, addr string) *http.Client {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a loopback network where every address is the machine's")
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 2000}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// answer is what a client got.
type answer struct {
	status         int
	refusal, retry string
}

// turnstile is an upstream that numbers what comes.
type turnstile struct {
	hold time.Duration
	open chan struct{} // if not nil, requests stay until it is closed
	came atomic.Int64
}

func (u *turnstile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Test-Number", strconv.FormatInt(u.came.Add(1), 10))
	if u.open != nil {
		<-u.open
		return
	}
	timer := time.NewTimer(u.hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// ask asks once. The number of those that came to the upstream between asking and
// getting in measures the wait, whatever the machine does meanwhile.
func (u *turnstile) ask(ctx context.Context, c *http.Client, url string) (a answer, overtaken int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, 0, err
	}
	before := u.came.Load()
	res, err := c.Do(req)
	if err != nil {
		return a, 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	a = answer{status: res.StatusCode, refusal: res.Header.Get("Kgate-Refusal"), retry: res.Header.Get("Retry-After")}
	number, _ := strconv.ParseInt(res.Header.Get("Test-Number"), 10, 64)
	return a, number - 1 - before, nil
}

// TestOneClientAmongTen: with order: fair, one client with a thousand requests at
// one gateway keeps nine others, here and at other gateways, waiting for no
// longer than two rounds of the ten take: 2 holds x 10 / k, in which twenty are
// admitted.
func TestOneClientAmongTen(t *testing.T) {
	const (
		k     = 4
		hold  = 100 * time.Millisecond
		crowd = 1000
		most  = 2 * 10
	)
	t.Parallel()
	for _, gateways := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d gateways", gateways), func(t *testing.T) {
			hog := from(t, "127.0.0.2")
			u := &turnstile{hold: hold}
			judge, _, url := cluster.NewJudge(t, u)
			c := cluster.Start(t, cluster.Options{Gateways: gateways, K: 1, Upstream: url, Pools: []cluster.Pool{
				{Name: "fair", K: k, Upstream: url, Settings: "queue: {order: fair}"},
			}})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _, _ = u.ask(ctx, hog, c.Gateways[0].URL()+"fair/")
					}
				})
			}
			if err := c.Gateways[0].AwaitPool(t.Context(), "fair", func(p admin.Pool) bool { return p.Waiting >= crowd-k }); err != nil {
				t.Fatal(err)
			}

			var mu sync.Mutex
			var waits []time.Duration
			var overtaken []int64
			var nine sync.WaitGroup
			for i := range 9 {
				client, g := from(t, fmt.Sprintf("127.0.1.%d", 1+i)), c.Gateways[i%gateways]
				nine.Go(func() {
					for range 3 {
						began := time.Now()
						a, n, err := u.ask(ctx, client, g.URL()+"fair/")
						if err != nil || a.status != http.StatusOK {
							t.Errorf("client %d: %+v %v", i, a, err)
							return
						}
						mu.Lock()
						waits, overtaken = append(waits, time.Since(began)-hold), append(overtaken, n)
						mu.Unlock()
					}
				})
			}
			nine.Wait()
			stop()
			wg.Wait()
			if t.Failed() {
				return
			}
			slices.Sort(waits)
			t.Logf("the nine waited %v at the median, %v at most (2 holds x 10 / k is %v); admitted meanwhile: at most %d",
				waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond), 2*hold*10/k, slices.Max(overtaken))
			// Some are while a busy machine brings the request to the gateway.
			if got := slices.Max(overtaken); got > int64(timing.Slack())*most {
				t.Errorf("%d were admitted while one of the nine waited, want at most %d", got, most)
			}
			if _, got, _ := judge.Counts(); got != k {
				t.Errorf("most in flight %d, k is %d", got, k)
			}
		})
	}
}

// TestSurplusIsRefused: with per_client.limit, what one client has waiting beyond
// that is refused at once with 429, while another client gets in line.
func TestSurplusIsRefused(t *testing.T) {
	const (
		k     = 4
		limit = 5
		crowd = 1000
	)
	t.Parallel()
	hog := from(t, "127.0.0.2")
	u := &turnstile{open: make(chan struct{})}
	judge, _, url := cluster.NewJudge(t, u)
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: url, Pools: []cluster.Pool{
		{Name: "limited", K: k, Upstream: url, Settings: fmt.Sprintf("queue: {per_client: {limit: %d}}", limit)},
	}})
	g := c.Gateways[0]
	answers := make(chan answer, crowd+1)
	var wg sync.WaitGroup
	ask := func(client *http.Client) {
		wg.Go(func() {
			a, _, err := u.ask(t.Context(), client, g.URL()+"limited/")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		})
	}
	for range crowd {
		ask(hog)
	}
	// Those that are refused are so while the others are held.
	for range crowd - k - limit {
		a := receive(t, answers)
		if a.status != http.StatusTooManyRequests || a.refusal != "client-limit" || a.retry == "" {
			t.Fatalf("one of the surplus: %+v", a)
		}
	}
	ask(from(t, "127.0.0.3"))
	if err := g.AwaitPool(t.Context(), "limited", func(p admin.Pool) bool { return p.Waiting > limit }); err != nil {
		t.Fatal(err)
	}
	close(u.open)
	for range k + limit + 1 {
		if a := receive(t, answers); a.status != http.StatusOK {
			t.Errorf("one within the limit: %+v", a)
		}
	}
	wg.Wait()
	m, err := g.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Sum("kgate_requests_total", `outcome="client_limit"`, `pool="limited"`); got != crowd-k-limit {
		t.Errorf("%v counted as client_limit", got)
	}
	if _, most, total := judge.Counts(); most != k || total != k+limit+1 {
		t.Errorf("the upstream saw %d requests, %d at once", total, most)
	}
}

func receive(t *testing.T, answers <-chan answer) answer {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a
	case <-timer.C:
		t.Fatal("no answer")
		return answer{}
	}
}
