package gateway

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/transport"
)

// pool drives one machine. Its lock is held while an event is taken in and its
// effects are carried out.
type pool struct {
	g     *Gateway
	name  string
	log   *slog.Logger
	watch PoolObserver
	ask   *time.Timer

	positions positions

	mu       sync.Mutex
	cfg      PoolConfig
	self     kmutex.Node
	view     *membership.View
	youngest kmutex.Node     // that any view has told of
	spec     membership.Pool // as view has it
	machine  *kmutex.Machine // nil when its incarnation has ended
	reform   *reform         // how the pool enters spec's epoch; nil: it just begins
	// unplanned are the epochs since the last one that has begun here of which
	// this gateway was home, and which it has not planned and never will.
	unplanned []uint64
	early     []kmutex.Envelope // to members of a view to come
	installed uint64            // epoch that has begun here last
	mended    uint64            // the last one that was asked to end early
	tokens    kmutex.TokenSet   // that there are in that epoch; nil: not known
	withheld  kmutex.TokenSet   // of them
	missed    *time.Timer       // ends it when what nobody knows of has run out
	// salvaged tokens of that epoch were on their way to a gateway that was lost
	// before they had left this one.
	salvaged kmutex.TokenSet
	last     kmutex.Ticket
	numbers  uint64                  // of slots so far
	slots    map[kmutex.Ticket]*Slot // that have a place in line, or are held
	clients  map[string]*client      // where they are told apart
	due      []*Slot                 // that get their places at the end of the step
	waiting  int
	inFlight int
	requests int   // that wait or are in flight; the rest are tickets
	desk     *desk // nil until the pool has tickets
	rate     serviceRate
	idle     signal
	newest   time.Time // arrival of the youngest request that was admitted
	trail    trail
}

func newPool(g *Gateway, name string) *pool {
	p := &pool{
		g: g, name: name, slots: make(map[kmutex.Ticket]*Slot), clients: make(map[string]*client),
		log: g.cfg.Logger.With(slog.String("pool", name)), watch: g.cfg.Observer.Pool(name),
	}
	p.positions.turn = make(chan struct{}, 1)
	p.reconfigure()
	p.ask = time.AfterFunc(time.Hour, p.askDue)
	p.ask.Stop()
	return p
}

// stopTimers is for the end. The caller holds the lock.
func (p *pool) stopTimers() {
	p.ask.Stop()
	if p.missed != nil {
		p.missed.Stop()
	}
}

func (p *pool) askDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine != nil {
		p.step(kmutex.Event{Kind: kmutex.EventAskDue})
	}
}

// deliver takes in a message. The caller holds no lock.
func (p *pool) deliver(from kmutex.Node, m kmutex.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine == nil {
		return ErrIsolated
	}
	p.watch.Received(m.Kind)
	if m.Epoch == p.installed {
		p.trail = p.trail.arrived(&m, kmutex.MaxK)
	}
	return p.try(kmutex.Event{Kind: kmutex.EventReceive, From: from, Message: m})
}

// step takes in an event that cannot be refused: one of this gateway's own.
func (p *pool) step(e kmutex.Event) { p.must(p.try(e)) }

func (p *pool) must(err error) {
	if err != nil {
		// The driver and its machine disagree about a ticket. Going on could
		// break the promise; stopping cannot.
		panic("gateway: pool " + p.name + ": " + err.Error())
	}
}

// try takes in an event, and gives places to the clients whose turn it is after
// it. The caller holds the lock.
func (p *pool) try(e kmutex.Event) error {
	err := p.move(e)
	for i := 0; i < len(p.due); i++ { // who comes in makes others due
		p.must(p.move(p.place(p.due[i], p.g.now())))
	}
	clear(p.due)
	p.due = p.due[:0]
	return err
}

// move takes in one event and carries out its effects.
func (p *pool) move(e kmutex.Event) error {
	fx, err := p.machine.Step(e)
	for i := range fx.Messages {
		m := &fx.Messages[i]
		p.watch.Sent(m.Message.Kind)
		p.trail.depart(&m.Message)
		p.send(m)
	}
	for _, g := range fx.Grants {
		p.grant(g)
	}
	if fx.AskTimer {
		p.ask.Reset(p.askInterval())
	}
	for _, t := range fx.Trace {
		p.watch.Moved(t)
	}
	return err
}

// send queues a message. One to a member whom the view here does not know yet is
// kept until the view that does: another gateway that knows it has passed its
// request on.
func (p *pool) send(m *kmutex.Envelope) {
	if p.toCome(m.To) {
		if len(p.early) < stashLimit {
			// It shares nothing with the machine: a message owns its slices.
			p.early = append(p.early, *m)
			return
		}
		p.lost(m, transport.ErrOverflow)
		return
	}
	if err := p.g.cfg.Links.Send(m.To, p.name, m.Message); err != nil {
		p.lost(m, err)
	}
}

// toCome reports that a node is younger than all that the view here tells of.
func (p *pool) toCome(n kmutex.Node) bool { return n > p.youngest }

// see takes in a view. The caller holds the lock.
func (p *pool) see(view *membership.View) {
	p.view = view
	for _, m := range view.Members {
		p.youngest = max(p.youngest, m.Node)
	}
	for _, l := range view.Lost {
		p.youngest = max(p.youngest, l.Node)
	}
	p.sendEarly()
}

// sendEarly sends what was kept for members that the view has now. What they have
// become meanwhile is the links' to say. The caller holds the lock.
func (p *pool) sendEarly() {
	early := p.early
	p.early = nil
	for i := range early {
		p.send(&early[i])
	}
}

// lost deals with a message that could not be queued. One to a gateway that has
// just left the view is void anyway: the pool's next epoch is on its way here.
// Any other is missed by the algorithm, so a new epoch is asked for.
func (p *pool) lost(m *kmutex.Envelope, err error) {
	if !errors.Is(err, transport.ErrUnknownPeer) && !errors.Is(err, transport.ErrClosed) && p.mended < p.installed {
		p.mended = p.installed
		p.recover(p.installed)
	}
	if !p.g.losses.First(p.name) {
		return
	}
	p.log.Warn("message to a peer is lost",
		slog.Uint64("node", uint64(m.To)), slog.String("message", m.Message.String()), slog.Any("error", err))
}

// retryAfter estimates how long a request that came now would wait.
func (p *pool) retryAfter() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate.wait(p.g.now(), p.waiting)
}

// signal wakes whoever waits for a condition that a lock guards.
type signal struct{ ch chan struct{} }

// wait returns a channel that is closed when the condition next holds.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) signal(holds bool) {
	if holds && s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
