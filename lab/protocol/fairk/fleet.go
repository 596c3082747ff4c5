package fairk

import (
	"slices"
	"time"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
	"github.com/kgate/kgate/replication"
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

func (o *Options) ask(nodes int, oneWay time.Duration) time.Duration {
	if o.Ask == nil {
		return Times(auto)(nodes, oneWay)
	}
	return o.Ask(nodes, oneWay)
}

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
			return newFleet(h, s, o), nil
		},
	}
}

// fleet is all gateways of one pool under one view.
type fleet struct{ gateways []*Gateway }

var _ protocol.Protocol = (*fleet)(nil)

func newFleet(h protocol.Host, s protocol.Setup, o Options) *fleet {
	view := &View{Index: uint64(s.Nodes)}
	spec := pool.View{Newest: kmutex.Node(s.Nodes), K: s.K, Epoch: 1}
	for i := range s.Nodes {
		view.Members = append(view.Members, Member{Node: kmutex.Node(i + 1), Host: i})
		spec.Members = append(spec.Members, kmutex.Node(i+1))
	}
	spec.Home = owner(view.Members)
	view.Pool = func(kmutex.Node) pool.View { return spec }
	f := new(fleet)
	parcels := new(Parcels)
	for i := range s.Nodes {
		var binding func() kmutex.Binding
		if o.Apart {
			binding = func() kmutex.Binding { return &apart{new(coordinator.Early), i, s.Nodes} }
		}
		g := NewGateway(Config{Host: h, Parcels: parcels, Index: i, Early: o.Early, Binding: binding, Ask: o.ask(s.Nodes, s.Delay)})
		g.begin(view, &spec)
		f.gateways = append(f.gateways, g)
	}
	return f
}

// begin lets a gateway begin the first epoch at once, with all tokens at home.
func (g *Gateway) begin(view *View, spec *pool.View) {
	host := g.cfg.Host
	g.cfg.Host = noReports{host}
	g.Follow(view)
	g.cfg.Host = host
	first := kmutex.Genesis(kmutex.EpochChange{Epoch: spec.Epoch, K: spec.K, Home: spec.Home}, g.self)
	fx, err := g.pool.Take(g.now(), spec.Home, &pool.Letter{To: g.self, Answer: &replication.EpochAnswer{Install: first}})
	if err != nil {
		panic(err)
	}
	g.carry(fx)
}

// noReports drops what is sent.
type noReports struct{ protocol.Host }

// Send implements [protocol.Host].
func (noReports) Send(int, int, string, any) {}

// apart begins like the paper: token q at node q.
type apart struct {
	*coordinator.Early
	index, nodes int
}

// Install implements kmutex.Binding.
func (a *apart) Install(self kmutex.Node, in *kmutex.Install) error {
	theirs := *in
	theirs.Free, theirs.Tails = nil, slices.Clone(in.Tails)
	for q := a.index; q < in.K; q += a.nodes {
		theirs.Free.Add(kmutex.Token(q))
	}
	for q := range theirs.Tails {
		theirs.Tails[q] = kmutex.SeatOf(kmutex.Node(q%a.nodes+1), kmutex.Token(q))
	}
	return a.Early.Install(self, &theirs)
}

// Acquire implements [protocol.Protocol].
func (f *fleet) Acquire(node int, t protocol.Request) { f.gateways[node].Acquire(t) }

// Release implements [protocol.Protocol].
func (f *fleet) Release(node int, t protocol.Request) { f.gateways[node].Release(t) }

// Cancel implements [protocol.Protocol].
func (f *fleet) Cancel(node int, t protocol.Request) { f.gateways[node].Cancel(t) }

// Deliver implements [sim.Handler].
func (f *fleet) Deliver(to, _ int, m any) { f.gateways[to].Deliver(m) }

// Due implements [sim.Handler].
func (f *fleet) Due(node int, t sim.Timer) { f.gateways[node].Due(t) }
