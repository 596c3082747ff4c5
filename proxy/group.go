package proxy

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// group is a target's upstreams. That of a pool outlives a change of the
// configuration, so that it knows of all requests that are in flight.
type group struct {
	mu        sync.Mutex
	upstreams []*backend
	turn      int // where the next search begins, so that ties spread evenly
	pool      string
	health    Health
	logger    *slog.Logger
}

// pick returns the healthy upstream with the fewest requests in flight that has
// not been tried, and counts one more for it, in one step, so that two requests
// never choose by the same count.
//
// When there is none, those that are only thought to be unhealthy, because
// requests to them have failed, are as good as any: one that is back is noticed
// by the first request. Those that fail their checks are not: nil.
func (g *group) pick(tried []*backend) *backend {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.fewestLocked(tried, true)
	if u == nil && !g.health.checks() {
		u = g.fewestLocked(tried, false)
	}
	g.turn = (g.turn + 1) % len(g.upstreams)
	if u == nil {
		return nil
	}
	if u.health.bad {
		u.health.again = time.Now().Add(g.health.Interval) // one request a time tries it
	}
	u.inFlight++
	return u
}

func (g *group) fewestLocked(tried []*backend, healthy bool) *backend {
	var best *backend
	for i := range g.upstreams {
		u := g.upstreams[(g.turn+i)%len(g.upstreams)]
		switch {
		case slices.Contains(tried, u), healthy && !u.health.eligible(g.health):
		case best == nil, u.inFlight < best.inFlight:
			best = u
		}
	}
	return best
}

// done takes a request to u off its count, and notes what it says of u.
func (g *group) done(u *backend, v verdict, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u.inFlight--
	if v == verdictFailed && g.health.checks() {
		select {
		case u.suspected <- struct{}{}:
		default: // it has been asked for
		}
	}
	if u.health.request(v, g.health) {
		g.logLocked(u, cause)
	}
}

// checked notes the result of a health check.
func (g *group) checked(u *backend, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u.health.check(err == nil, g.health) {
		g.logLocked(u, err)
	}
}

func (g *group) logLocked(u *backend, cause error) {
	attrs := []any{slog.String("pool", g.pool), slog.String("upstream", u.from)}
	if u.health.bad {
		g.logger.Warn("upstream is unhealthy", append(attrs, slog.Any("error", cause))...)
	} else {
		g.logger.Info("upstream is healthy again", attrs...)
	}
}

// isDown reports whether every upstream is unhealthy.
func (g *group) isDown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(g.upstreams, func(u *backend) bool { return !u.health.bad })
}

// status returns what is known of the upstreams.
func (g *group) status() []UpstreamStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]UpstreamStatus, len(g.upstreams))
	for i, u := range g.upstreams {
		all[i] = UpstreamStatus{Pool: g.pool, URL: u.from, Healthy: !u.health.bad, InFlight: u.inFlight}
	}
	return all
}

// replace has the requests to come go to next, the upstreams of p, and to none of
// those before that are not among them.
func (g *group) replace(next []*backend, p Pool, logger *slog.Logger) {
	g.mu.Lock()
	before := g.upstreams
	g.upstreams, g.turn, g.pool, g.health, g.logger = next, 0, p.Name, p.Health, logger
	g.mu.Unlock()
	for _, u := range before {
		u.endChecks()
		if !slices.Contains(next, u) {
			u.client.CloseIdle()
		}
	}
	for _, u := range next {
		g.startChecks(u, p.Health)
	}
}

// same returns the upstream that is reached in the same way at the same URL; nil:
// there is none.
func (g *group) same(from string, transport Transport) *backend {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.upstreams {
		if u.from == from && u.transport == transport {
			return u
		}
	}
	return nil
}

// close ends the checks and closes the connections that no request uses.
func (g *group) close() {
	g.mu.Lock()
	upstreams := g.upstreams
	g.mu.Unlock()
	for _, u := range upstreams {
		u.endChecks()
		u.client.CloseIdle()
	}
}
