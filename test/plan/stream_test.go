package plan

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stream is an open load: requests that come at random times.
type stream struct {
	urls   []string
	rate   float64 // per second, over all
	seed   uint64
	warmup time.Duration // not measured
	length time.Duration
}

// answers are what a stream's requests got within the measured time.
type answers struct {
	waits  []time.Duration // in the gateway's queue
	failed int
	rate   float64
}

// run sends the stream and waits for the last answer.
func (s stream) run(ctx context.Context) (*answers, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	r := rand.New(rand.NewPCG(s.seed, 1))
	var a answers
	var mu sync.Mutex
	var asked sync.WaitGroup
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	sent := 0
	for at := time.Duration(0); at < s.warmup+s.length; at += time.Duration(r.ExpFloat64() / s.rate * float64(time.Second)) {
		timer.Reset(time.Until(begin.Add(at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			asked.Wait()
			return nil, ctx.Err()
		}
		url := s.urls[r.IntN(len(s.urls))]
		counts := at >= s.warmup
		if counts {
			sent++
		}
		asked.Go(func() {
			wait, err := ask(ctx, client, url)
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
	a.rate = float64(sent) / s.length.Seconds()
	slices.Sort(a.waits)
	return &a, nil
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
