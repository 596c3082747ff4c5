package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
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
	env   *env
	name  string
	log   *slog.Logger
	watch PoolObserver
	ask   *time.Timer

	memory    *pool.Memory
	positions positions

	mu   sync.Mutex
	self kmutex.Node
	view *membership.View
	spec membership.Pool // as view has it
	// core decides; nil before the first view. Its incarnation's end ends it.
	core *pool.Pool
	wake *time.Timer // when core wants to be called
	// entering is since when spec's epoch is to begin here, and reason why.
	entering time.Time
	reason   Reason
	// letters lasts as long as the epoch whose letters are being sent.
	letters     context.Context
	stopLetters context.CancelFunc

	claims
	numbers  uint64   // of claims so far
	granted  []*claim // of tickets, in this step
	inFlight int
	requests int                     // that wait or are in flight, those of redeemed among them
	held     map[*pool.Ticket]*claim // of the tickets
	redeemed map[*Redeemed]bool      // by requests here, wherever the tickets are; whether they carry shares
	// moved wakes those who wait for a ticket.
	moved  signal
	rate   serviceRate
	idle   signal
	newest time.Time // arrival of the youngest request that was admitted
	links  spanLinks // of the tokens that are here

	bandwidth
}

func newPool(e *env, name string, memory *pool.Memory) *poolDriver {
	p := &poolDriver{
		env: e, name: name, memory: memory, held: make(map[*pool.Ticket]*claim), redeemed: make(map[*Redeemed]bool),
		claims: claims{slots: make(map[kmutex.Request]*claim), clients: make(map[string]*client)},
		log:    e.cfg.Logger.With(slog.String("pool", name)), watch: e.cfg.Observer.Pool(name),
	}
	p.bandwidth.init(p)
	p.positions.turn = make(chan struct{}, 1)
	p.ask, p.wake = time.AfterFunc(time.Hour, p.askDue), time.AfterFunc(time.Hour, p.wakeDue)
	p.stopTimers()
	return p
}

func newBinding(name admission.Binding) kmutex.Binding {
	if name == admission.BindingEarly {
		return new(coordinator.Early)
	}
	return new(coordinator.Late)
}

// askInterval is how long a gateway waits between two requests for a place in the
// pool's line; see ADR 0010. The caller holds the lock.
func (p *poolDriver) askInterval() time.Duration {
	if d := p.cfg.AskInterval; d > 0 {
		return d
	}
	const (
		factor  = 4
		unknown = time.Millisecond // round trip, until one is measured
	)
	rtt := cmp.Or(p.env.links.MeanRTT(), unknown)
	return factor * time.Duration(p.env.size.Load()) * rtt / 2
}

// configure takes over what this gateway decides about the pool.
func (p *poolDriver) configure(cfg PoolConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims.configure(cfg)
	p.placeDue()
}

// alive reports whether this incarnation has a part in the pool. The caller holds
// the lock.
func (p *poolDriver) alive() bool { return p.core != nil && p.core.State() != pool.Void }

// stopTimers is for the end. The caller holds the lock.
func (p *poolDriver) stopTimers() {
	p.ask.Stop()
	p.wake.Stop()
	p.pull.timer.Stop()
}

func (p *poolDriver) askDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		p.step(kmutex.Event{Kind: kmutex.EventAskDue})
	}
}

// deliver takes in a message. The caller holds no lock.
func (p *poolDriver) deliver(from kmutex.Node, m kmutex.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return admission.Isolated
	}
	p.watch.Received(m.Kind)
	if m.Epoch == p.core.Epoch() {
		p.links = p.links.arrived(&m, kmutex.MaxK)
	}
	return p.try(kmutex.Event{Kind: kmutex.EventReceive, From: from, Message: m})
}

// step takes in an event that cannot be refused: one of this gateway's own.
func (p *poolDriver) step(e kmutex.Event) { p.must(p.try(e)) }

func (p *poolDriver) must(err error) {
	if err != nil {
		// The driver and its machine disagree about a ticket. Going on could
		// break the promise; stopping cannot.
		panic("gateway: pool " + p.name + ": " + err.Error())
	}
}

// try takes in an event and carries out what it asks for. The caller holds the
// lock.
func (p *poolDriver) try(e kmutex.Event) error {
	fx, err := p.core.Step(e)
	p.carry(fx)
	return err
}

// unsent takes back what has never left for a gateway that is lost.
func (p *poolDriver) unsent(m *kmutex.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		p.core.Unsent(m)
	}
}

// sendAll queues messages, and returns the epoch of one that the line misses; 0:
// none.
func (p *poolDriver) sendAll(messages []kmutex.Envelope) (missed uint64) {
	for i := range messages {
		m := &messages[i]
		p.watch.Sent(m.Message.Kind)
		p.links.depart(&m.Message)
		if err := p.env.links.Send(m.To, p.name, m.Message); err != nil && p.lost(m, err) {
			missed = m.Message.Epoch
		}
	}
	return missed
}

// lost notes a message that could not be queued, and reports whether anybody
// misses it. One to a gateway that has just left the view is void anyway: the
// pool's next epoch is on its way here.
func (p *poolDriver) lost(m *kmutex.Envelope, err error) bool {
	if p.env.losses.First("message/" + p.name) {
		p.log.Warn("message to a peer is lost",
			slog.Uint64("node", uint64(m.To)), slog.String("message", m.Message.String()), slog.Any("error", err))
	}
	return !errors.Is(err, transport.ErrUnknownPeer) && !errors.Is(err, transport.ErrClosed)
}

// tickets returns those of this incarnation, or nil. The caller holds the lock.
func (p *poolDriver) tickets() *pool.Tickets {
	if !p.alive() {
		return nil
	}
	return p.core.Tickets()
}
