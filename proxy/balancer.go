package proxy

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// balancer chooses the upstream of each request of a pool, or of a route without a
// pool. That of a pool outlives a reload, so that it knows of all requests that are
// in flight.
type balancer struct {
	mu       sync.Mutex
	pool     string // empty: of a route without a pool
	policy   Health
	backends []*backend
	next     int // where the next search begins, so that ties spread evenly
	logger   *slog.Logger
}

// pick returns the healthy upstream with the fewest requests in flight that has
// not been tried, and counts one more for it, in one step, so that two requests
// never choose by the same count.
//
// When there is none, a healthy backup is taken. When there is none of these either,
// upstreams that are only thought to be unhealthy, because requests to them have
// failed, are as good as any: one that is back is noticed by the first request. Those
// that fail their checks are not: nil.
func (b *balancer) pick(tried []*backend) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 { // a reload has taken them away
		return nil
	}
	u := b.fewestLocked(tried, true, false)
	if u == nil {
		u = b.fewestLocked(tried, true, true)
	}
	if u == nil && !b.policy.checks() {
		u = cmp.Or(b.fewestLocked(tried, false, false), b.fewestLocked(tried, false, true))
	}
	if u == nil {
		return nil
	}
	b.next = (b.next + 1) % len(b.backends)
	if u.health.bad {
		u.health.again = time.Now().Add(b.policy.Interval) // one request at a time tries it
	}
	u.inFlight++
	return u
}

func (b *balancer) fewestLocked(tried []*backend, healthy, backup bool) *backend {
	var best *backend
	for i := range b.backends {
		u := b.backends[(b.next+i)%len(b.backends)]
		switch {
		case u.backup != backup, slices.Contains(tried, u), healthy && !u.health.eligible(b.policy):
		case best == nil, u.inFlight < best.inFlight:
			best = u
		}
	}
	return best
}

// done takes a request to u off its count, and notes what it says of u.
func (b *balancer) done(u *backend, v verdict, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u.inFlight--
	if v == verdictFailed && b.policy.checks() {
		select {
		case u.suspected <- struct{}{}:
		default: // a check has been asked for
		}
	}
	if u.health.request(v, b.policy) {
		b.logLocked(u, cause)
	}
}

// reached notes that a TCP connection to u could be made.
func (b *balancer) reached(u *backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.health.request(verdictGood, b.policy) {
		b.logLocked(u, nil)
	}
}

// checked notes the result of a health check.
func (b *balancer) checked(u *backend, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.health.check(err == nil, b.policy) {
		b.logLocked(u, err)
	}
}

func (b *balancer) logLocked(u *backend, cause error) {
	attrs := []any{slog.String("pool", b.pool), slog.String("upstream", u.configured)}
	if u.health.bad {
		b.logger.Warn("upstream is unhealthy", append(attrs, slog.Any("error", cause))...)
	} else {
		b.logger.Info("upstream is healthy again", attrs...)
	}
}

// isDown reports whether every upstream fails its checks.
func (b *balancer) isDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.policy.checks() && !slices.ContainsFunc(b.backends, func(u *backend) bool { return !u.health.bad })
}

// downRefusal is for requests while isDown. They get no slot, or give it back: none
// is held for an upstream that may not come back.
func (b *balancer) downRefusal() *admission.Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &admission.Refusal{Reason: admission.UpstreamDown, RetryAfter: b.policy.Interval}
}

// status returns what is known of the upstreams.
func (b *balancer) status() []UpstreamStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]UpstreamStatus, len(b.backends))
	for i, u := range b.backends {
		all[i] = UpstreamStatus{Pool: b.pool, URL: u.configured, Healthy: !u.health.bad, InFlight: u.inFlight}
	}
	return all
}

// update sends the requests to come to the upstreams of p. Those that it has
// already, reached in the same way, keep their connections and what is known of them.
// A p without a name is a route's, which needs no right to have requests in flight.
func (b *balancer) update(p Pool, standing func() uint64, logger *slog.Logger) {
	if p.Name == "" {
		standing = nil
	}
	b.mu.Lock()
	before := b.backends
	all := p.all()
	after := make([]*backend, len(all))
	for i, u := range all {
		same := slices.IndexFunc(before, func(old *backend) bool {
			return old.configured == u.String() && old.transport == p.Transport
		})
		if same >= 0 {
			after[i] = before[same]
		} else {
			after[i] = newBackend(u, p.Transport, standing)
		}
		after[i].backup = i >= len(p.Upstreams)
	}
	b.backends, b.next, b.pool, b.policy, b.logger = after, 0, p.Name, p.Health, logger
	b.mu.Unlock()
	for _, u := range before {
		u.endChecks()
		if !slices.Contains(after, u) {
			u.client.CloseIdle()
		}
	}
	for _, u := range after {
		b.startChecks(u, p.Health)
	}
}

// close ends the checks and closes the connections that no request uses.
func (b *balancer) close() {
	b.mu.Lock()
	backends := b.backends
	b.mu.Unlock()
	for _, u := range backends {
		u.endChecks()
		u.client.CloseIdle()
	}
}
