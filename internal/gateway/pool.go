package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// poolDriver drives one pool. Its lock is held while an event is taken in and its
// effects are carried out.
type poolDriver struct {
	*poolEnv
	memory    *pool.Memory
	positions positions

	mu   sync.Mutex
	view *membership.View
	spec membership.Pool // as view has it
	// core decides; nil before the first view. Its incarnation's end ends it.
	core *pool.Pool
	ask  *time.Timer // for places in line
	wake *time.Timer // when core wants to be called
	// entering is since when spec's epoch is to begin here, and reason why.
	entering time.Time
	reason   Reason

	claims
	bandwidth
	turns  turns
	pull   pull
	barred []string // upstreams that cannot be reached from here
	// outOfReach: all are barred that take requests.
	outOfReach bool
	classed    atomic.Pointer[membership.Pool] // the spec, if upstreams have a k of their own
	out        outbox
	placing    bool     // a goroutine is about to give those that are due their places
	moved      signal   // wakes those who wait for a ticket
	missed     uint64   // the epoch of a message that the line misses; 0: none
	granted    []*claim // of tickets, whose slots the tickets do not know of yet
}

func newPool(e *env, name string, memory *pool.Memory) *poolDriver {
	shared := &poolEnv{
		env: e, name: name, log: e.cfg.Logger.With(slog.String("pool", name)), watch: e.cfg.Observer.Pool(name), spans: make(spanLinks),
	}
	p := &poolDriver{poolEnv: shared, memory: memory, claims: newClaims(shared), out: outbox{poolEnv: shared}}
	p.bandwidth.init(func() bool { return p.entitled(p.self) }, p.short)
	p.positions.turn = make(chan struct{}, 1)
	p.ask = p.timer(func() { p.step(kmutex.EventAskDue, 0) })
	p.wake = p.timer(func() { p.apply(p.core.Wake(p.clock())) })
	p.pull.timer = p.timer(p.endPull)
	p.turns.timer = p.timer(p.countShares)
	return p
}

// timer returns a stopped timer of an event.
func (p *poolDriver) timer(do func()) *time.Timer {
	t := time.AfterFunc(time.Hour, func() { p.event(do) })
	t.Stop()
	return t
}

// close stops the timers. Nothing begins in the background after it: the lock orders it
// behind what has begun before the gateway's context ended.
func (p *poolDriver) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopTimers()
}

// stopTimers is for the end. The caller holds the lock.
func (p *poolDriver) stopTimers() {
	for _, t := range []*time.Timer{p.ask, p.wake, p.pull.timer, p.turns.timer} {
		t.Stop()
	}
}

func newBinding(name admission.Binding) kmutex.Binding {
	if name == admission.BindingEarly {
		return new(coordinator.Early)
	}
	return new(coordinator.Late)
}

// configure takes over what this gateway decides about the pool.
func (p *poolDriver) configure(cfg PoolConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims.configure(cfg)
	p.settle()
}

// follow takes over what the agreed view says about the pool. The caller holds the lock.
func (p *poolDriver) follow(self kmutex.Node, view *membership.View, spec membership.Pool) {
	before := p.view
	p.view = view
	if p.core == nil {
		p.self, p.founded = self, view.Founded
		p.core = pool.New(pool.Config{
			Self: self, Binding: newBinding(spec.Binding), Memory: p.memory,
			Audit: true, Interval: p.askInterval, Placed: p.placed,
			Wall: func() int64 { return p.wall().UnixNano() },
		})
	} else if spec.Epoch <= p.spec.Epoch {
		spec.Home, spec.Epoch = p.spec.Home, p.spec.Epoch // only the tickets change within an epoch
	}
	if spec.Epoch > p.spec.Epoch {
		p.entering, p.reason = p.now(), reasonOf(p.spec, spec, someLeft(before, view))
		p.out.endLetters()
	}
	p.spec = spec
	p.bandwidth.follow(spec)
	var classed *membership.Pool
	if spec.Classes != nil {
		classed = &spec
	}
	p.classed.Store(classed)
	p.barTokens()
	disk := pool.DiskNone
	if spec.Tickets > 0 {
		disk = p.disk.state()
	}
	p.apply(p.core.Follow(p.clock(), view.ForPool(spec, p.self, admission.Replicas), disk))
	if p.outOfReach {
		p.refuse(admission.UpstreamDown)
	}
	p.settle()
}

// placed returns when a waiting request took its place in line. The caller holds the
// lock.
func (p *poolDriver) placed(t kmutex.Request) (stamp int64, waits bool) {
	if s := p.slots[t]; s != nil {
		return s.placed.UnixNano(), true
	}
	at, pulled := p.pull.placed[t]
	return at.UnixNano(), pulled
}

// loaded takes in that the tickets on disk have been read.
func (p *poolDriver) loaded() {
	p.event(func() { p.apply(p.core.Loaded(p.clock(), p.disk.state())) })
}

// deliver takes in a message. One for an incarnation that has ended is void: its sender will hear.
func (p *poolDriver) deliver(from kmutex.Node, m kmutex.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil
	}
	p.watch.Received(m.Kind)
	if m.Epoch == p.core.Epoch() {
		p.spans.arrived(&m)
	}
	fx, err := p.core.Step(p.clock(), &kmutex.Event{Kind: kmutex.EventReceive, From: from, Message: &m})
	p.carry(fx)
	return err
}

func (p *poolDriver) take(from kmutex.Node, l *pool.Letter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return admission.Isolated
	}
	fx, err := p.core.Take(p.clock(), from, l)
	p.carry(fx)
	if errors.Is(err, pool.ErrNotYet) {
		return fmt.Errorf("%w: %w", transport.ErrNotYet, err) // a moment after a restart
	}
	return err
}

// unsent takes back a message that has never left for a gateway that is lost.
func (p *poolDriver) unsent(m *kmutex.Message) {
	p.event(func() { p.core.Unsent(m) })
}

// enqueue takes in a new claim, a request's or a ticket's. It waits then, and gets its
// place in line by the caller's placeNow or placeSoon, unless another one of its client
// has to come first. The caller holds the lock.
func (p *poolDriver) enqueue(s *claim, req *admission.Request, t *pool.Ticket) error {
	now := p.moment()
	switch {
	case p.draining.Load():
		return admission.Draining
	case !p.alive(), !p.entitledAt(p.self, now):
		return admission.Isolated
	case t == nil && p.outOfReach:
		return admission.UpstreamDown
	case p.atLimit(req.Client):
		return &admission.Refusal{Reason: admission.ClientLimit, Limit: p.limits.ClientLimit}
	case p.waiting >= p.limits.QueueLimit:
		return admission.QueueFull
	}
	if p.pull.going() {
		p.endPull()
		p.settle()
	}
	p.add(s, req, now, t)
	return nil
}

// placeNow gives those their places in line that are due; the caller has just enqueued s, and
// holds the lock.
func (p *poolDriver) placeNow(s *claim) {
	p.settle()
	if s.state == slotWaiting && p.waiting == 1 {
		p.rate.begins(s.since)
	}
}

// placeSoon is placeNow on another goroutine. The caller holds the lock, and others wait
// in line already. By then each request has its time of arrival and its turn to get a
// place: they are in the order in which their goroutines had the lock.
//
// To enter the line takes more stack than to wait for a slot, and the runtime does not
// shrink a stack of 8 KiB again: so a goroutine that is going to wait does not do it.
func (p *poolDriver) placeSoon() {
	if p.placing || len(p.due) == 0 && !p.mayTurn() || p.ctx.Err() != nil {
		return
	}
	p.placing = true
	p.wg.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.placing = false
		p.settle()
	})
}

// short is called when a transfer could use more than the share that is here.
func (p *poolDriver) short() {
	p.event(func() {
		if p.core.State() == pool.Installed && p.entitled(p.self) {
			p.core.UseFree()
			p.pull.begin(&p.claims, p.core.Machine(), p.spec.K, p.transfers())
		}
	})
}

// refuseWaiting ends every request's wait with err.
func (p *poolDriver) refuseWaiting(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse(err)
	p.settle()
}

// breakOff tells those who use slots that these are lost.
func (p *poolDriver) breakOff() {
	p.mu.Lock()
	losses := p.losses()
	p.mu.Unlock()
	for _, tell := range losses {
		tell()
	}
}

// untilIdle returns when no request waits or is in flight in any of the pools, or with
// ctx's error.
func untilIdle(ctx context.Context, pools []*poolDriver) error {
	for _, p := range pools {
		p.mu.Lock()
		idle, busy := p.idle.wait(), p.requests > 0
		p.mu.Unlock()
		if busy {
			select {
			case <-idle:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// void refuses the requests that wait and aborts those in flight, and returns how many
// there were of each; untilIdle waits for the latter.
func (p *poolDriver) void() (refused, aborted int) {
	p.mu.Lock()
	losses := p.losses()
	refused, aborted = p.claims.void()
	if err := p.core.End(); err != nil {
		p.log.Error("tickets of the lost incarnation cannot be kept", slog.Any("error", err))
	}
	p.pace(false)
	p.pull.void()
	p.moved.signal(true)
	p.stopTimers()
	p.out.endLetters()
	p.mu.Unlock()
	for _, tell := range losses {
		tell()
	}
	return refused, aborted
}

// end ends a claim, whatever its state, and lets happen what follows. The caller holds the
// lock.
func (p *poolDriver) end(s *claim) {
	p.release(s)
	p.settle()
}

// tickets returns those of this incarnation, or nil. The caller holds the lock.
func (p *poolDriver) tickets() *pool.Tickets {
	if !p.alive() {
		return nil
	}
	return p.core.Tickets()
}

// refused returns the error of a request that had no place in line.
func (p *poolDriver) refused(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal(err, 0)
}

// refusal returns the error of a request that waited at position, or did not. The caller
// holds the lock.
func (p *poolDriver) refusal(err error, position int) error {
	reason := admission.Reason("")
	if !errors.As(err, &reason) {
		return err
	}
	limit := p.spec.K
	if bound := (*admission.Refusal)(nil); errors.As(err, &bound) {
		limit = bound.Limit // which of them was reached
	}
	return &admission.Refusal{Reason: reason, RetryAfter: p.rate.wait(p.now(), p.waiting), Limit: limit, Position: position}
}
