package coordinator

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Late binds a request to a token when the token is free. The zero value is
// ready for Install.
type Late struct {
	self, home kmutex.Node
	k          int
	// tokens that there are; nil: not known.
	tokens kmutex.TokenSet
	// running are the tokens of requests of this node.
	running kmutex.TokenSet

	// coordinator: the baton is here, and with it free and counter. So many of the
	// free tokens as excess says stay free.
	coordinator bool
	free        kmutex.TokenSet
	excess      int
	counter     int
	// serial of the last grant of the epoch, as far as this node knows: at the
	// coordinator, of all.
	serial uint64
	// announced: home knows that the baton here waits for tokens, or the baton
	// came without any and who sent it has told home.
	announced bool

	// got is the number of the last baton that was here.
	got uint64
	// where the baton is, or went, as far as this node knows by itself;
	// directory: as home was told.
	where, directory kmutex.Location
	parked           []kmutex.ParkedToken
}

var _ kmutex.Binding = (*Late)(nil)

// Install implements [kmutex.Binding].
func (l *Late) Install(self kmutex.Node, in *kmutex.Install) error {
	if in.Holder != self && in.Free.Len() > 0 {
		return errors.New("free tokens without the baton")
	}
	holder := kmutex.Location{Holder: in.Holder}
	*l = Late{self: self, home: in.Home, k: in.K, tokens: in.Tokens, where: holder, directory: holder}
	for _, g := range in.Running {
		if !in.Withheld.Has(g.Token) {
			l.running.Add(g.Token)
		}
	}
	if in.Holder == self {
		// Every node, home too, knows from its Install where the baton begins.
		l.coordinator, l.free, l.excess, l.announced = true, in.Free.Clone(), in.Excess, true
	}
	return nil
}

// Asks implements [kmutex.Binding]: a node may have many batches in line.
func (*Late) Asks() bool { return true }

// Ask implements [kmutex.Binding]: nothing is tied yet.
func (l *Late) Ask([]kmutex.Request, *kmutex.Effects) (kmutex.Seat, int) { return kmutex.Seat{}, 0 }

// Enter implements [kmutex.Binding]: no token idles away from the baton.
func (l *Late) Enter(kmutex.Request, *kmutex.Effects) bool { return false }

// Assign implements [kmutex.Binding]: each request gets the next free token at
// or after the counter. When tokens run out, home learns, once per stay of the
// baton, where the released ones are wanted.
func (l *Late) Assign(requests []kmutex.Request, fx *kmutex.Effects) int {
	for i, t := range requests {
		if l.out() {
			if !l.announced {
				l.announced = true
				l.announce(fx)
			}
			return i
		}
		q, _ := l.free.Next(kmutex.Token(l.counter))
		l.free.Remove(q)
		l.running.Add(q)
		if l.counter = int(q) + 1; l.counter >= l.k {
			l.counter = 0
		}
		l.serial++
		fx.Grant(t, q, l.serial)
	}
	return len(requests)
}

// out reports that no token is free, or only those that stay so.
func (l *Late) out() bool { return l.free.Len() <= l.excess }

// announce tells home where the baton is or goes.
func (l *Late) announce(fx *kmutex.Effects) {
	switch l.home {
	case l.self:
		l.directory = l.where
	case l.where.Holder: // it knows as soon as it has the baton
	default:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindLocate, Number: l.where.Number, Holder: l.where.Holder})
	}
}

// Depart implements [kmutex.Binding]: the free tokens go along. When there are
// none, the next coordinator will want those that are released, and home learns it one
// delay before that one could say so.
func (l *Late) Depart(next kmutex.Place, baton *kmutex.Message, fx *kmutex.Effects) {
	baton.Counter, baton.Free, baton.Excess, baton.Serial = uint32(l.counter), l.free, uint32(l.excess), l.serial
	l.where = kmutex.Location{Number: baton.Number, Holder: next.Node}
	if l.out() {
		l.announce(fx)
	}
	l.coordinator, l.free, l.announced = false, nil, false
}

// CheckBaton implements [kmutex.Binding].
func (l *Late) CheckBaton(baton *kmutex.Message) error {
	if baton.Tails != nil || int(baton.Counter) >= l.k || baton.Excess > kmutex.MaxK || baton.Serial < l.serial {
		return errors.New("not a baton of this pool")
	}
	for _, q := range baton.Free.Tokens() {
		if err := l.checkToken(q); err != nil {
			return err
		}
	}
	return nil
}

// checkToken tells why q cannot arrive here.
func (l *Late) checkToken(q kmutex.Token) error {
	parked := slices.ContainsFunc(l.parked, func(p kmutex.ParkedToken) bool { return p.Token == q })
	switch {
	case q < 0 || q >= kmutex.MaxK || l.tokens != nil && !l.tokens.Has(q):
		return errors.New("no such token")
	case l.free.Has(q) || l.running.Has(q) || parked:
		return errors.New("a token that is here already")
	}
	return nil
}

// Arrive implements [kmutex.Binding]: parked tokens that waited for this baton
// join the free ones.
func (l *Late) Arrive(baton *kmutex.Message, _ *kmutex.Effects) {
	l.coordinator, l.free, l.counter = true, baton.Free.Clone(), int(baton.Counter)
	l.excess = int(baton.Excess)
	l.got, l.serial = baton.Number, baton.Serial
	l.where = kmutex.Location{Number: baton.Number, Holder: l.self}
	l.announced = l.out()
	l.parked = slices.DeleteFunc(l.parked, func(p kmutex.ParkedToken) bool {
		arrived := p.Number <= l.got
		if arrived {
			l.free.Add(p.Token)
		}
		return arrived
	})
}

// Free implements [kmutex.Binding]: with the baton here the token is free here;
// otherwise it looks for the baton, by way of home.
func (l *Late) Free(q kmutex.Token, fx *kmutex.Effects) {
	l.running.Remove(q)
	switch {
	case l.coordinator:
		l.free.Add(q)
	case l.self != l.home:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindToken, Token: q})
	default:
		l.forward(q, fx)
	}
}

// forward sends q after the baton.
func (l *Late) forward(q kmutex.Token, fx *kmutex.Effects) {
	to := l.where
	if l.self == l.home && l.directory.Number > to.Number {
		to = l.directory
	}
	if to.Holder == l.self {
		l.park(q, to.Number, fx)
		return
	}
	fx.Send(to.Holder, kmutex.Message{Kind: kmutex.KindToken, Token: q, Number: to.Number})
}

func (l *Late) park(q kmutex.Token, number uint64, fx *kmutex.Effects) {
	l.parked = append(l.parked, kmutex.ParkedToken{Token: q, Number: number})
	fx.Note(kmutex.Trace{Kind: kmutex.TraceParked, Token: q, Number: number})
}

// Cancel implements [kmutex.Binding]: waiting requests stay in their batches.
func (l *Late) Cancel(kmutex.Request) bool { return false }

// Waiting implements [kmutex.Binding].
func (l *Late) Waiting(ts []kmutex.Request) []kmutex.Request { return ts }

// Receive implements [kmutex.Binding].
func (l *Late) Receive(m *kmutex.Message, fx *kmutex.Effects) error {
	switch {
	case m.Kind == kmutex.KindLocate && l.self == l.home && m.Holder != 0:
		if m.Number > l.directory.Number {
			l.directory = kmutex.Location{Number: m.Number, Holder: m.Holder}
		}
		return nil
	case m.Kind == kmutex.KindToken && m.Seat.IsZero():
		if err := l.checkToken(m.Token); err != nil {
			return err
		}
		switch {
		case l.coordinator:
			l.free.Add(m.Token)
		case m.Number > l.got:
			l.park(m.Token, m.Number, fx)
		default:
			l.forward(m.Token, fx)
		}
		return nil
	}
	return errors.New("not a message of late binding, or not for this node")
}

// FreeHere implements [kmutex.Binding].
func (l *Late) FreeHere() (free kmutex.TokenSet, kept int) {
	free = l.free.Clone()
	if l.coordinator {
		kept = min(free.Len(), l.excess)
	}
	for _, p := range l.parked {
		free.Add(p.Token)
	}
	return free, kept
}

// Export implements [kmutex.Binding].
func (l *Late) Export(s *kmutex.State) {
	s.Counter, s.Free, s.Serial = uint32(l.counter), l.free.Clone(), l.serial
	s.Where, s.Directory, s.Announced = l.where, l.directory, l.announced
	s.Parked = slices.Clone(l.parked)
}

// Clone implements [kmutex.Binding].
func (l *Late) Clone() kmutex.Binding {
	c := *l
	c.free, c.running = l.free.Clone(), l.running.Clone()
	c.parked = slices.Clone(l.parked)
	return &c
}
