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
	// pseudonym is the gateway's name in Via.
	pseudonym string
	via       viaValues
	requestID string         // the canonical name of the header; empty: requests have no id
	once      *oncelog.Limit // of log lines; the Handler's
	places    *atomic.Int64  // scripts of pages that wait; the Handler's
	heads     *atomic.Int64  // bytes of requests that wait; the Handler's
	alarms    *alarms        // the Handler's
	// ticketCORS is the ticket API's.
	ticketCORS CORS
}

// newSnapshot returns the snapshot of a valid configuration. It takes over the pools'
// balancers of the one before.
func newSnapshot(cfg Config, before *snapshot) *snapshot {
	s := &snapshot{
		cfg: cfg.withDefaults(), balancers: make(map[string]*balancer, len(cfg.Pools)),
		tcp: make(map[string]*tcpRoute, len(cfg.TCP)), tcpPools: make(map[string]*balancer),
		once: before.once, places: before.places, heads: before.heads, alarms: before.alarms, pseudonym: before.pseudonym, via: newViaValues(before.pseudonym),
		requestID: http.CanonicalHeaderKey(cfg.Edge.RequestIDHeader),
	}
	for _, p := range s.cfg.Pools {
		if s.cfg.Bar != nil && before.balancers[p.Name] == nil {
			s.cfg.Bar(p.Name, nil) // it may have been here before
		}
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
			b.update(Pool{Upstreams: r.Upstreams, Transport: r.Transport}, nil, nil, s.cfg.Logger)
			s.direct = append(s.direct, b)
		}
		s.routes = append(s.routes, newRoute(r, s.pool(r.Pool), b))
	}
	s.ticketCORS = s.routes.ticketCORS()
	return s
}

// balance returns the balancer of a pool: b, or a new one if b is nil.
func (s *snapshot) balance(b *balancer, p Pool) *balancer {
	if b == nil {
		b = new(balancer)
	}
	b.update(p, s.cfg.Standing, s.cfg.Bar, s.cfg.Logger)
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

func (s *snapshot) newTCPRoute(t TCP) *tcpRoute {
	lead := func(host, pool string) *route {
		return newRoute(Route{Match: Match{Host: host}}, s.pool(pool), s.tcpPools[pool])
	}
	r := &tcpRoute{listener: t.Listener, access: t.Access}
	for _, n := range t.Names {
		r.named = append(r.named, lead(n.Host, n.Pool))
	}
	if t.Pool != "" {
		r.other = lead("", t.Pool)
	}
	return r
}
