package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// Waits are the access times of requests, as their clients measured them.
type Waits struct {
	Count    int
	Sum, Max time.Duration
}

// Mean access time.
func (w Waits) Mean() time.Duration { return w.Sum / time.Duration(max(w.Count, 1)) }

// Spread is the longest less the mean access time.
func (w Waits) Spread() time.Duration { return w.Max - w.Mean() }

// MeasureWaits lets as many clients as told ask at each gateway, again and again,
// for a while, half of them only half as long: so the longest wait is not among the
// last. All that was asked is answered and measured when it returns: so the
// gateways have admitted these requests and no others. The access time is the
// latency less the time that the sample upstream says it held the request.
func MeasureWaits(t *testing.T, gateways []*cluster.Gateway, clients []int, length time.Duration) Waits {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var (
		mu  sync.Mutex
		all Waits
		wg  sync.WaitGroup
	)
	began := time.Now()
	// One after the other: what all at once wait for a busy machine to take in their
	// requests, the gateways cannot know of.
	next := time.NewTicker(10 * time.Millisecond)
	defer next.Stop()
	for i, g := range gateways {
		for j := range clients[i] {
			<-next.C
			end := began.Add(length / time.Duration(1+j%2))
			wg.Go(func() {
				for time.Now().Before(end) {
					wait, err := accessTime(t.Context(), client, g.URL())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					all.Count++
					all.Sum += wait
					all.Max = max(all.Max, wait)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return all
}

func accessTime(ctx context.Context, client *http.Client, url string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, err
	}
	latency := time.Since(began)
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", url, res.Status)
	}
	held, err := strconv.ParseFloat(res.Header.Get(demo.HoldHeader), 64)
	if err != nil {
		return 0, fmt.Errorf("%s: how long it was held: %w", url, err)
	}
	return latency - time.Duration(held*float64(time.Millisecond)), nil
}
