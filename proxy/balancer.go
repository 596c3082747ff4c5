package proxy

import (
	"context"
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

	// updating is held while backends are replaced, which takes its time. It guards
	// what follows, and is taken before mu.
	updating sync.Mutex
	wanted   Pool
	standing func() uint64
	log      *slog.Logger
	services services
	follow   func() // ends followServices; nil: it does not run
}

// pick returns the upstream with the fewest requests in flight for its weight that has
// not been tried, and counts one more for it, in one step, so that two requests
// never choose by the same count. Of the healthy ones those of the lowest rank count:
// backups come after all others.
//
// When there is none, upstreams that are only thought to be unhealthy, because requests to
// them have failed, are as good as any: one that is back is noticed by the first request. Those
// that fail their checks are not: nil.
func (b *balancer) pick(tried []*backend) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 { // a reload has taken them away, or their service is not known
		return nil
	}
	u := b.bestLocked(tried, true)
	if u == nil && !b.policy.checks() {
		u = b.bestLocked(tried, false)
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

func (b *balancer) bestLocked(tried []*backend, healthy bool) *backend {
	var best *backend
	least := 0.0
	for i := range b.backends {
		u := b.backends[(b.next+i)%len(b.backends)]
		if slices.Contains(tried, u) || healthy && !u.health.eligible(b.policy) || best != nil && u.rank > best.rank {
			continue
		}
		if load := float64(u.inFlight+1) / u.share(b.policy.SlowStart); best == nil || u.rank < best.rank || load < least {
			best, least = u, load
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
		b.changedLocked(u, cause)
	}
}

// reached notes that a TCP connection to u could be made.
func (b *balancer) reached(u *backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.health.request(verdictGood, b.policy) {
		b.changedLocked(u, nil)
	}
}

// checked notes the result of a health check.
func (b *balancer) checked(u *backend, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.health.check(err == nil, b.policy) {
		b.changedLocked(u, err)
	}
}

// changedLocked is called when u has become unhealthy, or healthy again.
func (b *balancer) changedLocked(u *backend, cause error) {
	attrs := []any{slog.String("pool", b.pool), slog.String("upstream", u.configured)}
	if u.health.bad {
		b.logger.Warn("upstream is unhealthy", append(attrs, slog.Any("error", cause))...)
	} else {
		u.since = time.Now()
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
	b.stopFollowing()
	b.updating.Lock()
	defer b.updating.Unlock()
	b.wanted, b.standing, b.log = p, standing, logger
	b.findServices(context.Background(), firstLookUpTimeout)
	b.replace()
	if len(serviceNames(p.all())) > 0 && p.Transport.Resolve > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); b.followServices(ctx, p.Transport.Resolve) }()
		b.follow = func() { cancel(); <-done }
	}
}

// stopFollowing ends followServices.
func (b *balancer) stopFollowing() {
	b.updating.Lock()
	stop := b.follow
	b.follow = nil
	b.updating.Unlock()
	if stop != nil {
		stop()
	}
}

// replace has the backends be those of the wanted pool. The caller holds updating.
func (b *balancer) replace() {
	p := b.wanted
	const backups = 1 << 20 // their rank, behind those of all records
	all := append(b.services.members(p.Upstreams, 0), b.services.members(p.Backup, backups)...)
	b.mu.Lock()
	before := b.backends
	after := make([]*backend, 0, len(all))
	for _, m := range all {
		same := func(u *backend) bool { return u.configured == m.url.String() && u.transport == p.Transport }
		if slices.ContainsFunc(after, same) { // two services may name one server
			continue
		}
		var u *backend
		if i := slices.IndexFunc(before, same); i >= 0 {
			u = before[i]
		} else if u = newBackend(m.url, p.Transport, b.standing); len(before) > 0 {
			u.since = time.Now()
		}
		u.rank, u.weight = m.rank, m.weight
		after = append(after, u)
	}
	b.backends, b.next, b.pool, b.policy, b.logger = after, 0, p.Name, p.Health, b.log
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
	b.stopFollowing()
	b.mu.Lock()
	backends := b.backends
	b.mu.Unlock()
	for _, u := range backends {
		u.endChecks()
		u.client.CloseIdle()
	}
}
