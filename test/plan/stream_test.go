package plan

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/lab/workload"
)

// stream is an open load: requests that come at random times, at random gateways,
// and hold the upstream for random times. The same source in the lab draws the same
// ones.
type stream struct {
	urls   []string
	source *workload.Source
	warmup time.Duration // not measured
	length time.Duration
}

// answers are what a stream's requests got within the measured time.
type answers struct {
	waits  []time.Duration // in the gateway's queue
	failed int
}

// run sends the stream and waits for the last answer.
func (s stream) run(ctx context.Context) (*answers, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	var a answers
	var mu sync.Mutex
	var asked sync.WaitGroup
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at, node, hold := s.next(0); at < s.warmup+s.length; at, node, hold = s.next(at) {
		timer.Reset(time.Until(begin.Add(at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			asked.Wait()
			return nil, ctx.Err()
		}
		counts := at >= s.warmup
		asked.Go(func() {
			wait, err := ask(ctx, client, s.urls[node]+"?"+holdParameter+"="+hold.String())
			if !counts {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				a.failed++
				return
			}
			a.waits = append(a.waits, wait)
		})
	}
	asked.Wait()
	slices.Sort(a.waits)
	return &a, nil
}

// next draws in the order in which a run of the lab does.
func (s stream) next(at time.Duration) (time.Duration, int, time.Duration) {
	after, node, _ := s.source.Next()
	return at + after, node, s.source.Hold()
}

// ask returns how long the request waited in the gateway's queue.
func ask(ctx context.Context, client *http.Client, url string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, err
	}
	_, text, found := strings.Cut(res.Header.Get("Server-Timing"), ";dur=")
	if res.StatusCode != http.StatusOK || !found {
		return 0, fmt.Errorf("%s, Server-Timing %q", res.Status, res.Header.Get("Server-Timing"))
	}
	ms, err := strconv.ParseFloat(text, 64)
	return time.Duration(ms * float64(time.Millisecond)), err
}

func (a *answers) mean() time.Duration {
	var sum time.Duration
	for _, w := range a.waits {
		sum += w
	}
	return sum / time.Duration(max(len(a.waits), 1))
}

func (a *answers) quantile(q float64) time.Duration {
	if len(a.waits) == 0 {
		return 0
	}
	return a.waits[min(int(q*float64(len(a.waits))), len(a.waits)-1)]
}
