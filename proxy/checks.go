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

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/upstream"
)

// checkGap is the least time between two checks that failed requests ask for: a
// client whose requests fail must not flood an upstream with checks.
const checkGap = 100 * time.Millisecond

// startChecks checks the upstream until endChecks.
func (b *balancer) startChecks(u *backend, cfg Health) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	u.checks = func() { cancel(); wg.Wait() }
	switch {
	case cfg.checks():
		wg.Go(func() { b.check(ctx, u, cfg) })
	case u.isAgreed:
		wg.Go(func() { b.seek(ctx, u, cfg) })
	}
}

// check checks the upstream until ctx ends.
func (b *balancer) check(ctx context.Context, u *backend, cfg Health) {
	path, query, _ := strings.Cut(cfg.Path, "?")
	url := u.url.JoinPath(path)
	url.RawQuery = query
	for {
		began, next := time.Now(), cfg.Interval
		if err := u.probe(ctx, url.String(), cfg.Timeout); ctx.Err() == nil && b.checked(u, err) {
			next /= 10 // it is coming back: who waits for it need not wait for several intervals
		}
		select {
		case <-time.After(time.Until(began.Add(next))):
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

func (check) Check() error                          { return nil }
func (check) Connected(net.Conn, bool)              {}
func (check) Informational(int, http1.Fields) error { return nil }
func (check) Sends() bool                           { return false }
func (check) StopUpload() bool                      { return false }

// seek finds out whether u can be reached, where there are no checks: it opens a connection when a
// request has failed, and then from time to time until one could be made.
func (b *balancer) seek(ctx context.Context, u *backend, cfg Health) {
	var next time.Time
	for {
		away := b.isAway(u)
		if !away {
			select {
			case <-u.suspected:
			case <-ctx.Done():
				return
			}
			if away = b.isAway(u); away {
				next = time.Now().Add(cfg.Interval) // a request has just tried it
			}
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		select {
		case <-u.suspected: // that is what comes now
		default:
		}
		next = time.Now().Add(cfg.Interval)
		switch err := u.connect(ctx, cfg.Timeout); {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.missed(u, err)
		case away:
			b.found(u)
		default:
			next = time.Now().Add(checkGap)
		}
	}
}

// connect opens a connection, and looks whether the server keeps it: some stand behind something
// that takes connections for them.
func (u *backend) connect(ctx context.Context, timeout time.Duration) error {
	const kept = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tunnel, err := u.newCheck().Tunnel(ctx)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	_ = tunnel.Stream().SetReadDeadline(time.Now().Add(kept))
	if _, err := tunnel.Stream().Read(make([]byte, 1)); err != nil && !isTimeout(err) {
		return fmt.Errorf("it ends the connection: %w", err)
	}
	return nil
}

// missed notes that no connection to u could be made.
func (b *balancer) missed(u *backend, err error) {
	b.mu.Lock()
	b.missedLocked(u, err)
	b.mu.Unlock()
	b.tell()
}

// found notes that one could.
func (b *balancer) found(u *backend) {
	b.mu.Lock()
	b.foundLocked(u)
	b.mu.Unlock()
	b.tell()
}

func (b *balancer) isAway(u *backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return u.away
}
