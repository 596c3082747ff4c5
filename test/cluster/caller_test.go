package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// caller asks gateways, again at the next one if one is being taken out.
type caller struct {
	http *http.Client
	urls []string

	answered, retried atomic.Int64

	mu      sync.Mutex
	broken  []error       // what must not happen
	slowest time.Duration // from the first attempt to the answer
}

func newCaller(t *testing.T, urls ...string) *caller {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{http: &http.Client{Transport: transport, Timeout: patience}, urls: urls}
}

func (c *caller) succeed(after time.Duration) {
	c.answered.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, after)
}

func (c *caller) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.broken) < 10 {
		c.broken = append(c.broken, err)
	}
}

// errElsewhere: this gateway does not take the request, another one will.
var errElsewhere = errors.New("elsewhere")

// ask sends one request to one gateway.
func (c *caller) ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return errElsewhere
		}
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return fmt.Errorf("answer broken off: %w", err)
	}
	why := res.Header.Get("Kgate-Refusal")
	switch {
	case res.StatusCode == http.StatusOK:
		return nil
	case res.StatusCode == http.StatusServiceUnavailable && (why == "draining" || why == "isolated"):
		return errElsewhere
	default:
		return fmt.Errorf("%s, refusal %q", res.Status, why)
	}
}

// loop asks until ctx ends, each request until it is answered.
func (c *caller) loop(ctx context.Context, first int) {
	for ctx.Err() == nil {
		began := time.Now()
		for try := first; ; try++ {
			// The request itself outlives ctx: it would be broken off otherwise.
			err := c.ask(context.WithoutCancel(ctx), c.urls[try%len(c.urls)])
			if errors.Is(err, errElsewhere) {
				c.retried.Add(1)
				if pause(ctx, 5*time.Millisecond) && time.Since(began) < patience {
					continue
				}
				err = nil
				if ctx.Err() == nil {
					err = fmt.Errorf("no gateway answers for %v", patience)
				}
			} else if err == nil {
				c.succeed(time.Since(began))
			}
			if err != nil {
				c.fail(fmt.Errorf("%s: %w", c.urls[try%len(c.urls)], err))
				pause(ctx, 100*time.Millisecond)
			}
			break
		}
	}
}

// run starts clients; stop ends them and reports what went wrong.
func (c *caller) run(t *testing.T, clients int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { c.loop(ctx, i) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for _, err := range c.broken {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
