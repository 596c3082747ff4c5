package fairk

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Config is what a gateway is made with.
type Config struct {
	Host    protocol.Host
	Parcels *Parcels // shared by all gateways of a run
	// Index is the node of the engine that the gateway runs on, and Boot its
	// incarnation there.
	Index int
	Boot  string
	// Timer is a number larger than all timers' of the incarnations before it.
	Timer uint64
	Early bool
	// Binding makes a binding of the lab; nil: early or late, as Early says.
	Binding func() kmutex.Binding
	// Ask is the ask interval.
	Ask time.Duration
	// Clock is the gateway's monotonic clock; nil: true time.
	Clock func() time.Duration
	// Since returns when a waiting ticket arrived, by the wall clock; it orders
	// the line of a new epoch. Nil where there is one epoch only.
	Since func(protocol.Request) (int64, bool)
	// Recover asks the cluster to end an epoch: to spread the free tokens, or since no more
	// than k are in use. Nil where there is one epoch only; the tokens are not counted then.
	Recover func(epoch uint64, spread, whole bool)
	// Wall is the wall clock, in
	// nanoseconds, Moved is told that tickets have moved, and Unknown that nobody
	// knows a lost gateway's tickets. They may be nil in a pool without tickets.
	Wall           func() int64
	Moved, Unknown func()
	// Memory of what outlives the incarnation; nil: nothing does.
	Memory *pool.Memory
	// Watch is told what the machine traces, and Failed of what must not
	// happen; both may be nil, and then a failure panics.
	Watch  func(*Gateway, kmutex.Trace)
	Failed func(*Gateway, error)
}

// Gateway is one incarnation of a gateway's part of the pool.
type Gateway struct {
	cfg     Config
	self    kmutex.Node // 0: in no view yet
	view    *View
	pool    *pool.Pool // nil: in no view yet
	asks    uint64     // numbers the ask timers; only the last one counts
	asking  bool       // the last of them has not run out
	wakes   uint64     // numbers the others
	held    map[kmutex.Request]*pool.Ticket
	numbers map[*pool.Ticket]kmutex.Request // of held
}

// Timers of a gateway. Other kinds are for others to use.
const (
	timerAsk  = iota // the ask interval is over
	timerWake        // the pool wants to be called
	TimerOther
)

// parcel is a message of the machines on its way.
type parcel struct {
	from, to kmutex.Node
	message  kmutex.Message
}

// Parcels are the messages on their way, to be used again.
type Parcels struct{ idle []*parcel }

// Kind names the message.
func (p *parcel) Kind() string { return p.message.Kind.String() }

// String formats the message for traces.
func (p *parcel) String() string {
	return fmt.Sprintf("%d->%d e%d %v", p.from, p.to, p.message.Epoch, p.message)
}

// Envelope returns the message of a machine that m carries, if it does.
func Envelope(m any) (kmutex.Envelope, bool) {
	p, ok := m.(*parcel)
	if !ok {
		return kmutex.Envelope{}, false
	}
	return kmutex.Envelope{From: p.from, To: p.to, Message: p.message}, true
}

func (p *Parcels) get() *parcel {
	n := len(p.idle)
	if n == 0 {
		return new(parcel)
	}
	one := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return one
}

func (p *Parcels) put(one *parcel) {
	one.message = kmutex.Message{}
	p.idle = append(p.idle, one)
}

// NewGateway returns a gateway that takes part when a view names it.
func NewGateway(cfg Config) *Gateway {
	return &Gateway{cfg: cfg, view: new(View), asks: cfg.Timer, wakes: cfg.Timer}
}

func (g *Gateway) now() time.Duration {
	if g.cfg.Clock == nil {
		return g.cfg.Host.Now()
	}
	return g.cfg.Clock()
}

// Node returns by which number the views know this incarnation; 0: not yet.
func (g *Gateway) Node() kmutex.Node { return g.self }

// Pool returns the gateway's part of the pool; nil: it is in no view yet.
func (g *Gateway) Pool() *pool.Pool { return g.pool }

// Asking reports whether a request for a place in line is held back by the ask
// interval.
func (g *Gateway) Asking() bool { return g.asking }

// Acquire puts a new ticket in line. The gateway must be in the view.
func (g *Gateway) Acquire(t protocol.Request) {
	g.step(kmutex.Event{Kind: kmutex.EventAcquire, Request: kmutex.Request(t)})
}

// Release ends a granted ticket.
func (g *Gateway) Release(t protocol.Request) {
	g.step(kmutex.Event{Kind: kmutex.EventRelease, Request: kmutex.Request(t)})
}

// Cancel ends a waiting ticket.
func (g *Gateway) Cancel(t protocol.Request) {
	g.step(kmutex.Event{Kind: kmutex.EventCancel, Request: kmutex.Request(t)})
}

// Bar says which tokens the gateway cannot use from now on. It must be in the view.
func (g *Gateway) Bar(barred kmutex.TokenSet) { g.carry(g.pool.Bar(g.now(), barred)) }

// Deliver takes in a message of another gateway's machine. The links carry messages between
// two members that know each other.
func (g *Gateway) Deliver(m any) {
	p := m.(*parcel)
	if _, known := g.view.member(p.from); known && p.to == g.self {
		message := p.message // the machine may keep it
		g.step(kmutex.Event{Kind: kmutex.EventReceive, From: p.from, Message: &message})
	}
	g.cfg.Parcels.put(p)
}

// Due takes in that a timer has run out.
func (g *Gateway) Due(t sim.Timer) {
	switch {
	case g.pool == nil || g.pool.State() == pool.Void:
	case t.Kind == timerAsk && t.Arg == g.asks:
		g.asking = false
		g.step(kmutex.Event{Kind: kmutex.EventAskDue})
	case t.Kind == timerWake && t.Arg == g.wakes:
		g.carry(g.pool.Wake(g.now()))
	}
}

// step takes in an event of the machine.
func (g *Gateway) step(e kmutex.Event) {
	fx, err := g.pool.Step(g.now(), &e)
	if err != nil {
		g.fail(fmt.Errorf("node %d: %v: %w", g.self, e, err))
	}
	g.carry(fx)
}

// carry carries out what an event asks for, in package gateway's order.
func (g *Gateway) carry(fx *pool.Effects) {
	host := g.cfg.Host
	for _, i := range fx.Adopted {
		g.hold(i.Number, i.Ticket)
	}
	for i := range fx.Messages {
		g.send(&fx.Messages[i])
	}
	var granted []grant
	for _, a := range fx.Grants {
		switch t := g.held[a.Request]; {
		case t != nil:
			granted = append(granted, grant{t, a})
		case a.Request < kmutex.FirstAdopted: // others are refused, and cancelled
			host.Grant(g.cfg.Index, protocol.Request(a.Request))
		}
	}
	if fx.AskTimer {
		g.asks++
		g.asking = true
		host.After(g.cfg.Index, g.cfg.Ask, sim.Timer{Kind: timerAsk, Arg: g.asks})
	}
	for i := range fx.Trace {
		if fx.Trace[i].Kind == kmutex.TraceQueued {
			host.Found(fx.Trace[i].Count)
		}
		g.watch(fx.Trace[i])
	}
	for _, l := range fx.Letters {
		g.post(l)
	}
	if fx.ChangeEpoch != 0 {
		g.cfg.Recover(fx.ChangeEpoch, fx.Spread, fx.Whole)
	}
	if fx.WakeAt != 0 {
		g.wakes++
		host.After(g.cfg.Index, max(0, fx.WakeAt-g.now())+time.Microsecond, sim.Timer{Kind: timerWake, Arg: g.wakes})
	}
	if err := fx.Err; err != nil {
		g.fail(fmt.Errorf("node %d: %w", g.self, err))
	}
	if len(fx.Doubled) > 0 {
		g.fail(fmt.Errorf("node %d: tokens %v are in use twice", g.self, fx.Doubled))
	}
	for _, t := range fx.Gone {
		g.letGo(t)
	}
	if len(fx.Unknown) > 0 {
		g.cfg.Unknown()
	}
	moved := fx.Moved && g.cfg.Moved != nil
	g.goOn(granted, slices.Clone(fx.Ended))
	if moved {
		g.cfg.Moved()
	}
}

// send gives a message to the link to its receiver. One to a gateway that has just
// left is void anyway.
func (g *Gateway) send(m *kmutex.Envelope) {
	to, known := g.view.member(m.To)
	if !known {
		return
	}
	p := g.cfg.Parcels.get()
	p.from, p.to, p.message = m.From, m.To, m.Message
	g.cfg.Host.Send(g.cfg.Index, to.Host, p.Kind(), p)
}

func (g *Gateway) watch(t kmutex.Trace) {
	if g.cfg.Watch != nil {
		g.cfg.Watch(g, t)
	}
}

func (g *Gateway) fail(err error) {
	if g.cfg.Failed == nil {
		panic(err)
	}
	g.cfg.Failed(g, err)
}

func (g *Gateway) binding() kmutex.Binding {
	switch {
	case g.cfg.Binding != nil:
		return g.cfg.Binding()
	case g.cfg.Early:
		return new(coordinator.Early)
	}
	return new(coordinator.Late)
}

// Waiting calls visit for every message that waits for a view.
func (g *Gateway) Waiting(visit func(kmutex.Envelope)) {
	if g.pool != nil {
		g.pool.Early(visit)
	}
}

// Unsent takes back a message to a lost gateway that never left this one. It comes
// before the view without that gateway.
func (g *Gateway) Unsent(m any) {
	if e, ok := Envelope(m); ok && g.pool != nil {
		g.pool.Unsent(&e.Message)
	}
}
