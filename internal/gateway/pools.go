package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// pools has the pools of a gateway's present incarnation by name, and what outlives it.
type pools struct {
	env

	mu      sync.RWMutex
	limits  map[string]PoolConfig
	barred  map[string][]string // upstreams that cannot be reached from here, by pool
	drivers map[string]*poolDriver
	// memories of pools, by name, whatever incarnation this is.
	memories map[string]*pool.Memory
}

// pool returns a pool, or nil.
func (g *pools) pool(name string) *poolDriver {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.drivers[name]
}

// all returns the pools, in no order.
func (g *pools) all() []*poolDriver {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Values(g.drivers))
}

// takeAll returns the pools, in no order, and forgets them.
func (g *pools) takeAll() []*poolDriver {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Collect(maps.Values(g.drivers))
	clear(g.drivers)
	return all
}

// Deliver takes in a message from another gateway. It is of a pool that is known here: no epoch
// begins before this gateway has reported.
func (g *pools) Deliver(from kmutex.Node, name string, m kmutex.Message) error {
	g.mu.RLock()
	p, ended := g.drivers[name], len(g.drivers) == 0
	g.mu.RUnlock()
	switch {
	case p != nil:
		return p.deliver(from, m)
	case ended: // this incarnation has, and its messages are void, as in deliver
		return nil
	}
	return fmt.Errorf("%w: %q, from node %d", admission.ErrUnknownPool, name, from)
}

// follow takes over what the agreed view says about a pool.
func (g *pools) follow(self kmutex.Node, view *membership.View, spec membership.Pool) {
	p := g.pool(spec.Name)
	known := p != nil
	if !known {
		p = newPool(&g.env, spec.Name, g.memoryOf(spec.Name))
		p.configure(g.limitsOf(spec.Name))
		p.bar(g.barredOf(spec.Name))
	}
	p.mu.Lock()
	if !known {
		g.mu.Lock()
		g.drivers[spec.Name] = p // before it reports: then the others' messages may come
		g.mu.Unlock()
	}
	p.follow(self, view, spec)
	p.mu.Unlock()
	if !known {
		p.configure(g.limitsOf(spec.Name)) // Configure may have been called meanwhile
		p.bar(g.barredOf(spec.Name))
		if g.disk.loaded.Load() {
			p.loaded() // the disk may have been read meanwhile
		}
	}
}

// memoryOf returns what this gateway remembers of a pool, whatever incarnation it is.
func (g *pools) memoryOf(name string) *pool.Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.memories[name]
	if m == nil {
		m = new(pool.Memory)
		g.memories[name] = m
	}
	return m
}

// Configure changes what this gateway decides about its pools, for requests that come from
// now on. Those that wait keep their places.
func (g *pools) Configure(limits map[string]PoolConfig) {
	g.mu.Lock()
	g.limits = maps.Clone(limits)
	g.mu.Unlock()
	for _, p := range g.all() {
		p.configure(g.limitsOf(p.name))
	}
}

func (g *pools) limitsOf(name string) PoolConfig {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.limits[name]
}

// missing says why there is no pool of a name here.
func (g *pools) missing(name string) error {
	entitled := g.entitled(g.views.Standing().Node) // before the view: it may be the first one
	if _, agreed := g.views.View().Pool(name); agreed || !entitled {
		return admission.Isolated
	}
	g.mu.RLock()
	names := slices.Sorted(maps.Keys(g.drivers))
	g.mu.RUnlock()
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("%w; there are: %s", admission.ErrUnknownPool, strings.Join(names, ", "))
}

// refusal returns the error of a request of the named pool, which may not exist.
func (g *pools) refusal(name string, err error) error {
	if p := g.pool(name); p != nil {
		return p.refused(err)
	}
	if reason := admission.Reason(""); errors.As(err, &reason) {
		return &admission.Refusal{Reason: reason}
	}
	return err
}

// ready returns the pool of a request that may come in, or its refusal.
func (g *pools) ready(name string) (*poolDriver, error) {
	p := g.pool(name)
	switch {
	case g.draining.Load():
		return nil, g.refusal(name, admission.Draining)
	case p == nil:
		return nil, g.refusal(name, g.missing(name))
	}
	return p, nil
}

// Bar tells which upstreams of a pool cannot be reached from here, until the next call. Requests
// that wait are refused when no upstream is left.
func (g *pools) Bar(pool string, upstreams []string) {
	g.mu.Lock()
	g.barred[pool] = upstreams
	g.mu.Unlock()
	if p := g.pool(pool); p != nil {
		p.bar(g.barredOf(pool))
	}
}

func (g *pools) barredOf(pool string) []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.barred[pool]
}
