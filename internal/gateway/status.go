package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/kmutex"
)

// PoolStatus is one pool as this gateway sees it.
type PoolStatus struct {
	Name    string
	K       int
	Binding admission.Binding
	Epoch   uint64
	Home    kmutex.Node
	// InFlight and Waiting count the requests at this gateway.
	InFlight, Waiting int
	// QueueLimit is how many may wait here.
	QueueLimit int
	// TicketsWaiting and TicketsHolding count the tickets here, which are among
	// Waiting and InFlight.
	TicketsWaiting, TicketsHolding int
	// Baton tells whether this gateway is the coordinator, BatonNumber which baton
	// it had last: in an epoch the number grows with each move.
	Baton       bool
	BatonNumber uint64
	// Free tokens at this gateway: with the baton, parked or idle.
	Free int
	// Withheld tokens may still be in use at a lost gateway.
	Withheld int
	// ReplicaLag is, for each successor, how many changes of tickets it has not
	// acknowledged; nil while the pool has no tickets.
	ReplicaLag map[kmutex.Node]int
	// Rate of the pool, and what this gateway had and moved of it; zero without one.
	Rate     membership.Rate
	Down, Up pace.Totals
	// Upstreams that have a k of their own.
	Upstreams []UpstreamStatus
	// Sharing tells of the clients in the order fair; nil: it is another order.
	Sharing *Sharing
	// Begun tells that the epoch has begun here: requests can be granted.
	Begun bool
}

// Status returns the state of the named pool; zero if it is unknown.
func (g *Gateway) Status(name string) PoolStatus {
	if p := g.pool(name); p != nil {
		return statusOf(p)
	}
	return PoolStatus{}
}

// Pools returns the states of all pools, by name.
func (g *Gateway) Pools() []PoolStatus {
	pools := g.all()
	slices.SortFunc(pools, func(a, b *poolDriver) int { return strings.Compare(a.name, b.name) })
	var all []PoolStatus
	for _, p := range pools {
		all = append(all, statusOf(p))
	}
	return all
}

func statusOf(p *poolDriver) PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PoolStatus{
		Name: p.name, K: p.spec.K, Binding: p.spec.Binding, Epoch: p.spec.Epoch, Home: p.spec.Home,
		InFlight: p.inFlight, Waiting: p.waiting, QueueLimit: p.limits.QueueLimit,
		Upstreams: p.upstreams(), Rate: p.spec.Rate, Down: p.down.Totals(), Up: p.up.Totals(), Sharing: p.sharing(p.now()),
	}
	if p.alive() {
		if ts := p.core.Tickets(); ts != nil {
			s.ReplicaLag = ts.Lag()
		}
		m := p.core.Machine()
		s.Baton, s.Begun, s.Free = m.Coordinator(), !m.Frozen(), m.FreeHere()
		s.Withheld, s.BatonNumber = p.core.Withheld().Len(), m.BatonNumber()
	}
	for _, held := range p.held {
		if held.state == slotWaiting {
			s.TicketsWaiting++
		} else {
			s.TicketsHolding++
		}
	}
	return s
}

// Begun returns a channel that is closed when some pool's PoolStatus.Begun has become
// true. Take it before Pools, then nothing is missed.
func (g *Gateway) Begun() <-chan struct{} { return g.begun.wait() }

// Missing returns the gateways whose reports a new epoch waits for at this one, the home of a
// pool, and since when. Until they come, or these gateways are no members any more, the pool
// lets nobody in.
func (g *Gateway) Missing() map[kmutex.Node]time.Time {
	missing := make(map[kmutex.Node]time.Time)
	for _, p := range g.all() {
		p.mu.Lock()
		var nodes []kmutex.Node
		var since time.Duration
		if p.alive() {
			nodes, since = p.core.Missing()
		}
		p.mu.Unlock()
		at := g.started.Add(since)
		for _, n := range nodes {
			if before, known := missing[n]; !known || at.Before(before) {
				missing[n] = at
			}
		}
	}
	return missing
}

// sharing returns who shares the slots; nil: the order is not fair.
func (q *queue) sharing(now time.Time) *Sharing {
	if !q.limits.Fair {
		return nil
	}
	var all []ClientStatus
	oldest := make(map[*client]time.Time)
	for _, s := range q.all() {
		if at := oldest[s.client]; s.client != nil && s.state == slotWaiting && (at.IsZero() || s.since.Before(at)) {
			oldest[s.client] = s.since
		}
	}
	for key, s := range q.of {
		c := q.clients[key]
		if c == nil && s.recent.over(now) {
			continue
		}
		of := s.recent
		of.to(now)
		one := ClientStatus{Key: key, Weight: s.weight, Slots: of.slots(now), Admitted: of.admitted}
		if of.admitted > 0 {
			one.MeanWait = time.Duration(of.waited / of.admitted * float64(time.Second))
		}
		if c != nil {
			one.InUse, one.Waiting = c.held, c.waiting
		}
		if at := oldest[c]; !at.IsZero() {
			one.Oldest = now.Sub(at)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), cmp.Compare(b.Oldest, a.Oldest), cmp.Compare(a.Key, b.Key))
	})
	return &Sharing{Present: len(q.clients), Most: all[:min(clientsShown, len(all))]}
}
