package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// Gateway drives the pools of one process. Its methods are safe for concurrent
// use.
type Gateway struct {
	env
	server *http.Server // of what other gateways ask

	// self is watch's alone: the incarnation that the pools are of, 0 none.
	self kmutex.Node
	// ending: what the incarnation before had in flight is being ended.
	ending atomic.Bool

	mu      sync.RWMutex
	limits  map[string]PoolConfig
	pools   map[string]*poolDriver
	pending pendingMessages
	// memories of pools, by name, whatever incarnation this is.
	memories map[string]*pool.Memory
}

var _ transport.Handler = (*Gateway)(nil)

// New returns a gateway that admits nothing until a view tells it its pools. It
// is ready to be the links' handler, but does nothing by itself before Start.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := &Gateway{
		env:    env{cfg: cfg.withDefaults(), now: time.Now, wall: time.Now, started: time.Now()},
		limits: maps.Clone(cfg.Pools), pools: make(map[string]*poolDriver), memories: make(map[string]*pool.Memory),
	}
	g.disk.kick, g.disk.none = make(chan struct{}, 1), cfg.DataDir == ""
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Start follows the views and serves the other gateways, until Close, which also
// closes the exchange. Fleet answers what they ask with CallFleet; nil: nothing. The
// links deliver nothing before they have been given peers.
func (g *Gateway) Start(links Links, exchange Exchange, views Views, fleet http.Handler) {
	g.links, g.exchange, g.views = links, exchange, views
	g.startExchange(fleet)
	g.wg.Go(g.watch)
}

func (g *Gateway) pool(name string) *poolDriver {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.pools[name]
}

// all returns the pools, in no order.
func (g *Gateway) all() []*poolDriver {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Values(g.pools))
}

// Deliver takes in a message from another gateway. A message for a pool that is
// not agreed here yet is kept until the view that explains it arrives.
func (g *Gateway) Deliver(from kmutex.Node, name string, m kmutex.Message) error {
	if p := g.pool(name); p != nil {
		return p.deliver(from, m)
	}
	g.mu.Lock()
	if p := g.pools[name]; p != nil {
		g.mu.Unlock()
		return p.deliver(from, m)
	}
	defer g.mu.Unlock()
	return g.pending.put(g.now(), from, name, m)
}

// ReceivePayload takes in what another gateway has sent with
// [Links].SendPayload. It may take as long as reading the payload does.
func (g *Gateway) ReceivePayload(from kmutex.Node, topic string, payload []byte) error {
	name, ours := strings.CutPrefix(topic, poolTopic)
	if !ours {
		return fmt.Errorf("gateway: node %d sends something about %q", from, topic)
	}
	l, err := pool.ParseLetter(from, payload)
	if err != nil {
		return err
	}
	p := g.pool(name)
	if p == nil {
		return fmt.Errorf("%w: %q", admission.ErrUnknownPool, name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return admission.Isolated
	}
	fx, err := p.core.Take(g.clock(), from, l)
	p.carry(fx)
	return err
}

func (g *Gateway) followPool(self kmutex.Node, view *membership.View, spec membership.Pool) {
	p := g.pool(spec.Name)
	known := p != nil
	if !known {
		p = newPool(&g.env, spec.Name, g.memoryOf(spec.Name))
		p.configure(g.limitsOf(spec.Name))
	}
	if spec.Tickets > 0 {
		g.openDisk(view.Cluster)
	}
	p.follow(self, view, spec)
	g.mu.Lock()
	g.pools[spec.Name] = p
	early := g.pending.take(spec.Name)
	g.mu.Unlock()
	if !known {
		p.configure(g.limitsOf(spec.Name)) // Configure may have come between
		if g.disk.loaded.Load() {
			p.loaded() // so may the disk
		}
		g.begun.give()
	}
	for _, m := range early {
		if err := p.deliver(m.from, m.message); err != nil {
			p.log.Warn("message refused", slog.Any("error", err))
		}
	}
}

// memoryOf returns what this gateway remembers of the pool name, whatever incarnation it
// is.
func (g *Gateway) memoryOf(name string) *pool.Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.memories[name]
	if m == nil {
		m = new(pool.Memory)
		g.memories[name] = m
	}
	return m
}

// Configure changes what this gateway decides about its pools, for who comes from
// now on. Who waits keeps the place.
func (g *Gateway) Configure(pools map[string]PoolConfig) {
	g.mu.Lock()
	g.limits = maps.Clone(pools)
	g.mu.Unlock()
	for _, p := range g.all() {
		p.configure(g.limitsOf(p.name))
	}
}

func (g *Gateway) limitsOf(name string) PoolConfig {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.limits[name]
}

// Drain takes the gateway out: new requests fail with admission.Draining, and so do
// those that wait, unless they are to be served. It returns when no request waits
// or uses a slot any more, or with ctx's error. Tickets stay, for the successor.
func (g *Gateway) Drain(ctx context.Context, serve bool) error {
	g.draining.Store(true)
	pools := g.all()
	for _, p := range pools {
		if !serve {
			p.refuseWaiting(admission.Draining)
		}
	}
	return untilIdle(ctx, pools)
}

// BreakOff refuses new requests and those that wait, and tells those that use a slot,
// a ticket's included, that it is lost (OnLost). It returns when none is left, or with
// ctx's error: then some may still be in flight.
func (g *Gateway) BreakOff(ctx context.Context) error {
	g.draining.Store(true)
	g.broken.Store(true) // before the pools' locks, under which OnLost reads it
	pools := g.all()
	for _, p := range pools {
		p.refuseWaiting(admission.Draining)
		p.breakOff()
	}
	return untilIdle(ctx, pools)
}

func untilIdle(ctx context.Context, pools []*poolDriver) error {
	for _, p := range pools {
		if idle := p.untilIdle(); idle != nil {
			select {
			case <-idle:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Close ends everything that runs in the background, and the exchange. New requests
// fail with admission.Draining: nobody watches the lease any more. Slots can still be
// released; what that would tell other gateways is lost.
func (g *Gateway) Close() error {
	g.draining.Store(true)
	g.end()
	var err error
	if g.server != nil { // it has been started
		err = g.server.Close()
		g.client.CloseIdleConnections()
	}
	for _, p := range g.all() {
		p.mu.Lock()
		p.stopTimers()
		p.mu.Unlock()
	}
	g.wg.Wait()
	return err
}

// missingPool says why there is no pool of a name here.
func (g *Gateway) missingPool(name string) error {
	if _, agreed := g.views.View().Pool(name); agreed || !g.entitled(g.views.Standing().Node) {
		return admission.Isolated
	}
	var names []string
	for _, p := range g.Pools() {
		names = append(names, p.Name)
	}
	return fmt.Errorf("%w; there are: %s", admission.ErrUnknownPool, strings.Join(names, ", "))
}

// refusal returns the error of a request of the named pool, which may not exist.
func (g *Gateway) refusal(pool string, err error) error {
	if p := g.pool(pool); p != nil {
		return p.refusal(err, 0)
	}
	if reason := admission.Reason(""); errors.As(err, &reason) {
		return &admission.Refusal{Reason: reason}
	}
	return err
}
