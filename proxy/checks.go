package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// checkGap is the least time between two checks that failed requests ask for: a
// client whose requests fail must not flood an upstream with checks.
const checkGap = 100 * time.Millisecond

// startChecks checks the upstream until endChecks.
func (b *balancer) startChecks(u *backend, cfg Health) {
	if !cfg.checks() {
		return
	}
	path, query, _ := strings.Cut(cfg.Path, "?")
	url := u.url.JoinPath(path)
	url.RawQuery = query
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(cfg.Interval)
		defer tick.Stop()
		for {
			began := time.Now()
			if err := u.probe(ctx, url.String(), cfg.Timeout); ctx.Err() == nil {
				b.checked(u, err)
			}
			select {
			case <-tick.C:
			case <-u.suspected:
				select {
				case <-time.After(time.Until(began.Add(checkGap))):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	u.checks = func() { cancel(); wg.Wait() }
}

func (u *backend) endChecks() {
	if u.checks != nil {
		u.checks()
		u.checks = nil
	}
}

// probe makes one check.
func (u *backend) probe(ctx context.Context, url string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := u.newCheck()
	defer client.CloseIdle()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kgate-health")
	res, err := client.RoundTrip(req, check{})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	const enough = 64 << 10
	_, _ = io.CopyN(io.Discard, res.Body, enough) // for upstreams that log a broken connection
	if res.StatusCode < 200 || res.StatusCode >= 400 {
		return fmt.Errorf("health check: %s", res.Status)
	}
	return nil
}

var _ upstream.Caller = check{}

// check is the upstream.Caller of a health check, which has no client and needs no slot.
type check struct{}

func (check) Check() error                         { return nil }
func (check) Connected(net.Conn, bool)             {}
func (check) Informational(int, http.Header) error { return nil }
func (check) Sends() bool                          { return false }
func (check) StopUpload() bool                     { return false }
