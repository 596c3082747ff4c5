package proxy

import "github.com/kgate/kgate/internal/oncelog"

// snapshot is the Handler under one configuration. A request stays on the snapshot that
// it came to.
type snapshot struct {
	cfg      Config
	routes   routes
	targets  []*target
	upgrades *tracker // the Handler's, as the next one
	// pseudonym is the gateway's name in Via.
	pseudonym string
	via       viaValues
	failures  oncelog.Limit // of upstreams
}

// newSnapshot returns the plane of a valid configuration. From the plane before it
// takes what lasts: the upstreams of pools, as far as they are the same.
func newSnapshot(cfg Config, before *snapshot) *snapshot {
	h := &snapshot{cfg: cfg.withDefaults(), upgrades: before.upgrades, pseudonym: before.pseudonym, via: newViaValues(before.pseudonym)}
	pools := make(map[string]*target, len(h.cfg.Pools))
	for _, p := range h.cfg.Pools {
		t := newTarget(p, before.pool(p.Name), h.cfg.Standing, h.cfg.Logger)
		pools[p.Name] = t
		h.targets = append(h.targets, t)
	}
	for _, r := range h.cfg.Routes {
		t := pools[r.Pool]
		if r.Pool == "" {
			t = newTarget(Pool{Upstreams: r.Upstreams, Transport: r.Transport}, new(group), nil, h.cfg.Logger)
			h.targets = append(h.targets, t)
		}
		h.routes = append(h.routes, newRoute(r, t))
	}
	return h
}

// pool returns the upstreams of the named pool, none if there is no such pool.
func (s *snapshot) pool(name string) *group {
	for _, t := range s.targets {
		if t.Name == name && name != "" {
			return t.group
		}
	}
	return new(group)
}

// retire ends the checks of the plane's upstreams and closes their idle
// connections, but for those that the next plane, if any, has taken over.
func (s *snapshot) retire(next *snapshot) {
	for _, t := range s.targets {
		if next == nil || t.group != next.pool(t.Name) {
			t.close()
		}
	}
}
