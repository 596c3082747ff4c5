package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// Gateway drives the pools of one process. Its methods are safe for concurrent
// use.
type Gateway struct {
	pools
	standing follower
	tickets  ticketCalls
	serving  atomic.Bool                  // Start has been called, and Close has not
	fleet    atomic.Pointer[http.Handler] // nil: none
}

var _ transport.Handler = (*Gateway)(nil)

// New returns a gateway that admits nothing until a view tells it its pools. It
// is ready to be the links' handler, but does nothing by itself before Start.
func New(cfg Config) *Gateway {
	g := &Gateway{pools: pools{
		env:    env{cfg: cfg.withDefaults(), now: time.Now, wall: time.Now, started: time.Now()},
		limits: maps.Clone(cfg.Pools), barred: make(map[string][]string), drivers: make(map[string]*poolDriver), memories: make(map[string]*pool.Memory),
	}}
	g.disk.kick, g.disk.none = make(chan struct{}, 1), cfg.DataDir == ""
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.standing.pools, g.standing.writer.pools, g.tickets.pools = &g.pools, &g.pools, &g.pools
	g.tickets.polls = polls{pools: &g.pools, of: make(map[pollKey]*poll), watches: make(map[uint64]*watch), at: make(map[string]map[pollKey]*watch)}
	g.tickets.watchers.of = make(map[string]map[uint64]context.CancelFunc)
	return g
}

// Start follows the views and serves the other gateways, until Close. Fleet answers what they
// ask with CallFleet; nil: nothing. The links deliver nothing before they have been given peers.
func (g *Gateway) Start(links Links, views Views, fleet http.Handler) {
	g.links, g.views = links, views
	if fleet != nil {
		g.fleet.Store(&fleet)
	}
	g.serving.Store(true)
	g.wg.Go(g.standing.watch)
}

// ReceivePayload takes in what another gateway has sent with
// [Links].SendPayload. It may take as long as reading the payload does.
func (g *Gateway) ReceivePayload(from kmutex.Node, topic string, payload []byte) error {
	name, ours := strings.CutPrefix(topic, poolTopic)
	if !ours {
		return fmt.Errorf("node %d sends something about %q", from, topic)
	}
	l, err := pool.ParseLetter(from, payload)
	if err != nil {
		return err
	}
	p := g.pool(name)
	if p == nil { // its view is not here yet, as is usual for a moment after a restart
		return fmt.Errorf("%w: %w: %q", transport.ErrNotYet, admission.ErrUnknownPool, name)
	}
	return p.take(from, l)
}

// lastWait is how long a request of a gateway that ends may wait: as long as a connection has for
// its last request. A free slot comes from another gateway within that time, far away or busy as that is.
const lastWait = time.Second

// WaitNoMore lets no request wait for longer than lastWait: then it fails with
// admission.Draining. Nobody takes a ticket any more.
func (g *Gateway) WaitNoMore() {
	if g.hurried.Swap(true) {
		return
	}
	time.AfterFunc(lastWait, func() {
		for _, p := range g.all() {
			p.refuseWaiting(admission.Draining)
		}
	})
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
// a ticket's included, that it is lost. It returns when none is left, or with
// ctx's error: then some may still be in flight.
func (g *Gateway) BreakOff(ctx context.Context) error {
	g.draining.Store(true)
	g.broken.Store(true)
	pools := g.all()
	for _, p := range pools {
		p.refuseWaiting(admission.Draining)
		p.breakOff()
	}
	return untilIdle(ctx, pools)
}

// Close ends everything that runs in the background. New requests
// fail with admission.Draining: nobody watches the lease any more. Slots can still be
// released; what that would tell other gateways is lost.
func (g *Gateway) Close() error {
	g.draining.Store(true)
	g.serving.Store(false)
	g.end()
	for _, p := range g.all() {
		p.close()
	}
	g.wg.Wait()
	return nil
}
