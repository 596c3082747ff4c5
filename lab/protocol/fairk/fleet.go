package fairk

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Options are what a pool's configuration sets.
type Options struct {
	// Early binding, as in the paper; else late.
	Early bool
	// Apart lets the tokens begin at the first k nodes, one each, as in the
	// paper; else all begin at the pool's home. It is for early binding.
	Apart bool
	// Ask returns the ask interval; nil: [Times](4), which is what the
	// configuration calls auto.
	Ask func(nodes int, oneWay time.Duration) time.Duration
}

// Times returns the ask interval of f x gateways x one-way delay; 0: none.
func Times(f float64) func(int, time.Duration) time.Duration {
	return func(nodes int, oneWay time.Duration) time.Duration {
		return time.Duration(f * float64(nodes) * float64(oneWay))
	}
}

// auto is the factor that package gateway uses.
const auto = 4

// Early makes kgate's pools with early binding.
func Early() protocol.Spec { return Spec("fairk-early", Options{Early: true}) }

// Late makes kgate's pools with late binding.
func Late() protocol.Spec { return Spec("fairk-late", Options{}) }

// Paper makes the paper's setting: early binding, tokens at the first k nodes.
func Paper() protocol.Spec { return Spec("fairk-paper", Options{Early: true, Apart: true}) }

// Spec makes a protocol of its own name with other options.
func Spec(name string, o Options) protocol.Spec {
	about := "kgate, late binding: one line, tokens go to its head"
	if o.Early {
		about = "kgate, early binding: the paper's algorithm"
	}
	return protocol.Spec{
		Name: name, About: about,
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			f := NewFleet(h, s, o)
			f.begin(s)
			return f, nil
		},
	}
}

// Fleet is all gateways of one pool.
type Fleet struct {
	host     protocol.Host
	options  Options
	ask      time.Duration
	gateways []*gateway
	parcels  []*parcel // to be used again
}

var _ protocol.Protocol = (*Fleet)(nil)

// parcel is a message of the machines on its way.
type parcel struct {
	from, to kmutex.Node
	message  kmutex.Message
}

// NewFleet returns gateways that admit nothing yet.
func NewFleet(h protocol.Host, s protocol.Setup, o Options) *Fleet {
	if o.Ask == nil {
		o.Ask = Times(auto)
	}
	f := &Fleet{host: h, options: o, ask: o.Ask(s.Nodes, s.Delay)}
	for i := range s.Nodes {
		f.gateways = append(f.gateways, &gateway{fleet: f, index: i})
	}
	return f
}

// begin lets all gateways enter the first epoch. The pool's home is who owns its
// name on the ring.
func (f *Fleet) begin(s protocol.Setup) {
	names := make([]string, s.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("gw-%d", i+1)
	}
	owner := chordring.New(names).Owner("pool")
	var home kmutex.Node
	for i, name := range names {
		if name == owner {
			home = nodeOf(i)
		}
	}
	for i, g := range f.gateways {
		g.self = nodeOf(i)
		g.machine = kmutex.New(g.self, f.binding())
		in := kmutex.Genesis(1, s.K, home, g.self)
		if f.options.Apart {
			f.apart(in, i)
		}
		g.step(kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	}
}

// apart changes the beginning at node i into the paper's: token q at node q.
func (f *Fleet) apart(in *kmutex.Install, i int) {
	in.Free = nil
	if i < in.K {
		in.Free.Add(kmutex.Token(i))
	}
	for q := range in.Tails {
		in.Tails[q] = kmutex.SeatOf(nodeOf(q%len(f.gateways)), kmutex.Token(q))
	}
}

func nodeOf(index int) kmutex.Node { return kmutex.Node(index + 1) }
func indexOf(n kmutex.Node) int    { return int(n) - 1 }
func (f *Fleet) binding() kmutex.Binding {
	if f.options.Early {
		return new(coordinator.Early)
	}
	return new(coordinator.Late)
}

// Acquire implements [protocol.Protocol].
func (f *Fleet) Acquire(node int, t protocol.Ticket) {
	f.gateways[node].step(kmutex.Event{Kind: kmutex.EventAcquire, Ticket: kmutex.Ticket(t)})
}

// Release implements [protocol.Protocol].
func (f *Fleet) Release(node int, t protocol.Ticket) {
	f.gateways[node].step(kmutex.Event{Kind: kmutex.EventRelease, Ticket: kmutex.Ticket(t)})
}

// Cancel implements [protocol.Protocol].
func (f *Fleet) Cancel(node int, t protocol.Ticket) {
	f.gateways[node].step(kmutex.Event{Kind: kmutex.EventCancel, Ticket: kmutex.Ticket(t)})
}

// Deliver implements [sim.Handler].
func (f *Fleet) Deliver(to, _ int, m any) {
	p := m.(*parcel)
	f.gateways[to].step(kmutex.Event{Kind: kmutex.EventReceive, From: p.from, Message: p.message})
	f.parcels = append(f.parcels, p)
}

// Due implements [sim.Handler].
func (f *Fleet) Due(node int, t sim.Timer) {
	if g := f.gateways[node]; t.Arg == g.asks {
		g.step(kmutex.Event{Kind: kmutex.EventAskDue})
	}
}

// gateway is one gateway's part of the pool.
type gateway struct {
	fleet   *Fleet
	index   int
	self    kmutex.Node
	machine *kmutex.Machine
	asks    uint64 // numbers the ask timers; only the last one counts
}

// step takes in an event and carries out its effects, in package gateway's order.
func (g *gateway) step(e kmutex.Event) {
	fx, err := g.machine.Step(e)
	if err != nil {
		panic(fmt.Sprintf("fairk: node %d: %v: %v", g.self, e, err))
	}
	host := g.fleet.host
	for i := range fx.Messages {
		m := &fx.Messages[i]
		p := g.fleet.parcel()
		p.from, p.to, p.message = m.From, m.To, m.Message
		host.Send(g.index, indexOf(m.To), m.Message.Kind.String(), p)
	}
	for _, grant := range fx.Grants {
		host.Grant(g.index, protocol.Ticket(grant.Ticket))
	}
	if fx.AskTimer {
		g.asks++
		host.After(g.index, g.fleet.ask, sim.Timer{Arg: g.asks})
	}
	for i := range fx.Trace {
		if fx.Trace[i].Kind == kmutex.TraceQueued {
			host.Found(fx.Trace[i].Count)
		}
	}
}

func (f *Fleet) parcel() *parcel {
	n := len(f.parcels)
	if n == 0 {
		return new(parcel)
	}
	p := f.parcels[n-1]
	f.parcels = f.parcels[:n-1]
	return p
}
