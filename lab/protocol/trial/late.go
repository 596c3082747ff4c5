package trial

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// Copy makes late binding as it ships, to show that the copy is one.
func Copy() protocol.Spec { return ofLate("late-copy", late{}) }

// Direct makes late binding in which a released token is sent to where this node
// sent the baton, goes on once from there, and only then by way of home.
func Direct() protocol.Spec { return ofLate("late-direct", late{direct: true}) }

// OnArrival makes late binding as it once shipped: home learns where the head is
// from the head itself, and not from the one before it.
func OnArrival() protocol.Spec { return ofLate("late-on-arrival", late{onArrival: true}) }

func ofLate(name string, l late) protocol.Spec {
	return fairk.Spec(name, fairk.Options{Binding: func() kmutex.Binding { return l.Clone() }})
}

// late is a copy of coordinator.Late with two switches, and without what recovery
// needs.
type late struct {
	direct, onArrival bool

	self, home  kmutex.Node
	k           int
	coordinator bool
	free        kmutex.TokenSet
	counter     int
	serial      uint64
	announced   bool
	got         uint64
	where       kmutex.Whereabouts
	directory   kmutex.Whereabouts
	parked      []kmutex.ParkedToken
}

var _ kmutex.Binding = (*late)(nil)

func (l *late) Install(self kmutex.Node, in *kmutex.Install) error {
	holder := kmutex.Whereabouts{Holder: in.Holder}
	*l = late{direct: l.direct, onArrival: l.onArrival, self: self, home: in.Home, k: in.K, where: holder, directory: holder}
	if in.Holder == self {
		l.coordinator, l.free, l.announced = true, in.Free.Clone(), true
	}
	return nil
}

func (*late) Asks() bool { return true }

func (*late) Ask([]kmutex.Ticket, *kmutex.Effects) (kmutex.Seat, int) { return kmutex.Seat{}, 0 }

func (*late) Enter(kmutex.Ticket, *kmutex.Effects) bool { return false }

func (l *late) Assign(tickets []kmutex.Ticket, fx *kmutex.Effects) int {
	for i, t := range tickets {
		q, ok := l.free.Next(kmutex.Token(l.counter))
		if !ok {
			if !l.announced {
				l.announced = true
				l.tell(fx)
			}
			return i
		}
		l.free.Remove(q)
		l.counter = (int(q) + 1) % l.k
		l.serial++
		fx.Grant(t, q, l.serial)
	}
	return len(tickets)
}

// tell lets home know where the baton is or goes.
func (l *late) tell(fx *kmutex.Effects) {
	switch l.home {
	case l.self:
		l.directory = l.where
	case l.where.Holder:
	default:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindWhere, Number: l.where.Number, Holder: l.where.Holder})
	}
}

func (l *late) Depart(next kmutex.Place, baton *kmutex.Message, fx *kmutex.Effects) {
	baton.Counter, baton.Free, baton.Serial = uint32(l.counter), l.free, l.serial
	l.where = kmutex.Whereabouts{Number: baton.Number, Holder: next.Node}
	if !l.onArrival && l.free.Len() == 0 {
		l.tell(fx)
	}
	l.coordinator, l.free, l.announced = false, nil, false
}

func (*late) CheckBaton(*kmutex.Message) error { return nil }

func (l *late) Arrive(baton *kmutex.Message, _ *kmutex.Effects) {
	l.coordinator, l.free, l.counter = true, baton.Free.Clone(), int(baton.Counter)
	l.got, l.serial = baton.Number, baton.Serial
	l.where = kmutex.Whereabouts{Number: baton.Number, Holder: l.self}
	l.announced = !l.onArrival && l.free.Len() == 0
	l.parked = slices.DeleteFunc(l.parked, func(p kmutex.ParkedToken) bool {
		arrived := p.Number <= l.got
		if arrived {
			l.free.Add(p.Token)
		}
		return arrived
	})
}

func (l *late) Free(q kmutex.Token, fx *kmutex.Effects) {
	switch {
	case l.coordinator:
		l.free.Add(q)
	case l.self == l.home:
		l.forward(q, 0, fx)
	case l.direct && l.where.Number > 0:
		l.forward(q, 0, fx)
	default:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindToken, Token: q, Hops: fromHome})
	}
}

// fromHome marks a token that has been to home, or is on its way there.
const fromHome = 2

// forward sends q after the baton; hops counts the nodes that have done so.
func (l *late) forward(q kmutex.Token, hops uint32, fx *kmutex.Effects) {
	to := l.where
	if l.self == l.home {
		hops = fromHome
		if l.directory.Number > to.Number {
			to = l.directory
		}
	}
	switch {
	case to.Holder == l.self:
		l.parked = append(l.parked, kmutex.ParkedToken{Token: q, Number: to.Number})
	case l.direct && hops == 1 && l.self != l.home:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindToken, Token: q, Hops: fromHome})
	default:
		fx.Send(to.Holder, kmutex.Message{Kind: kmutex.KindToken, Token: q, Number: to.Number, Hops: min(hops+1, fromHome)})
	}
}

func (*late) Cancel(kmutex.Ticket) bool { return false }

func (*late) Waiting(ts []kmutex.Ticket) []kmutex.Ticket { return ts }

func (l *late) Receive(m *kmutex.Message, fx *kmutex.Effects) error {
	switch {
	case m.Kind == kmutex.KindWhere:
		if m.Number > l.directory.Number {
			l.directory = kmutex.Whereabouts{Number: m.Number, Holder: m.Holder}
		}
	case m.Kind != kmutex.KindToken:
		return errors.New("trial: not a message of late binding")
	case l.coordinator:
		l.free.Add(m.Token)
	case m.Number > l.got:
		l.parked = append(l.parked, kmutex.ParkedToken{Token: m.Token, Number: m.Number})
	default:
		l.forward(m.Token, m.Hops, fx)
	}
	return nil
}

func (l *late) FreeHere() (free kmutex.TokenSet, kept int) { return l.free.Clone(), 0 }

func (*late) Export(*kmutex.State) {}

func (l *late) Clone() kmutex.Binding {
	c := *l
	c.free, c.parked = l.free.Clone(), slices.Clone(l.parked)
	return &c
}
