package proxy

import (
	"net/http"
	"sync/atomic"

	"github.com/kgate/kgate/internal/oncelog"
)

// snapshot is all that a Handler derives from one configuration. A request stays on
// the snapshot that it came to. Nothing in it changes but the balancers of pools,
// which the next snapshot takes over.
type snapshot struct {
	cfg       Config
	routes    routes
	balancers map[string]*balancer // of pools, by name
	direct    []*balancer          // of routes without a pool
	tcp       map[string]*tcpRoute // by listener
	tcpPools  map[string]*balancer // of pools, by name, for TCP connections
	streams   *tracker             // the Handler's
	// pseudonym is the gateway's name in Via.
	pseudonym string
	via       viaValues
	requestID string         // the canonical name of the header; empty: requests have no id
	failures  *oncelog.Limit // of upstreams; the Handler's
	places    *atomic.Int64  // scripts of pages that wait; the Handler's
}

// newSnapshot returns the snapshot of a valid configuration, after that before it.
func newSnapshot(cfg Config, before *snapshot) *snapshot {
	s := &snapshot{
		cfg: cfg.withDefaults(), balancers: make(map[string]*balancer, len(cfg.Pools)),
		tcp: make(map[string]*tcpRoute, len(cfg.TCP)), tcpPools: make(map[string]*balancer),
		streams: before.streams, failures: before.failures, places: before.places, pseudonym: before.pseudonym, via: newViaValues(before.pseudonym),
		requestID: http.CanonicalHeaderKey(cfg.Edge.RequestIDHeader),
	}
	for _, p := range s.cfg.Pools {
		forHTTP, forTCP := p.split()
		s.balancers[p.Name] = s.balance(before.balancers[p.Name], forHTTP)
		if forTCP.serves(true) {
			s.tcpPools[p.Name] = s.balance(before.tcpPools[p.Name], forTCP)
		}
	}
	for _, t := range s.cfg.TCP {
		s.tcp[t.Listener] = s.newTCPRoute(t)
	}
	for _, r := range s.cfg.Routes {
		b := s.balancers[r.Pool]
		if r.Pool == "" {
			b = new(balancer)
			b.update(Pool{Upstreams: r.Upstreams, Transport: r.Transport}, nil, s.cfg.Logger)
			s.direct = append(s.direct, b)
		}
		s.routes = append(s.routes, newRoute(r, s.pool(r.Pool), b))
	}
	return s
}

// balance returns the balancer of a pool, which may have been there before.
func (s *snapshot) balance(b *balancer, p Pool) *balancer {
	if b == nil {
		b = new(balancer)
	}
	b.update(p, s.cfg.Standing, s.cfg.Logger)
	return b
}

// pool returns the configuration of the named pool; nil if there is none.
func (s *snapshot) pool(name string) *Pool {
	for i := range s.cfg.Pools {
		if p := &s.cfg.Pools[i]; p.Name == name {
			return p
		}
	}
	return nil
}

// retire ends the checks of the snapshot's upstreams and closes their idle
// connections, except those that the next snapshot, if any, has taken over.
func (s *snapshot) retire(next *snapshot) {
	for name, b := range s.balancers {
		if next == nil || b != next.balancers[name] {
			b.close()
		}
	}
	for name, b := range s.tcpPools {
		if next == nil || b != next.tcpPools[name] {
			b.close()
		}
	}
	for _, b := range s.direct {
		b.close()
	}
}
