package coordinator

import (
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// This file moves the tokens of late binding to where they are needed.

// lack asks for tokens that the coordinator's first left requests need. Home is asked
// once for each; a node that is recalled leaves the list.
func (l *Late) lack(left int, fx *kmutex.Effects) {
	elsewhere := l.k + total(l.excess) - l.running.Len() - without(l.free, l.barred).Len() // tokens barred here are offered to others
	want := min(left+l.short(), elsewhere)
	if want <= 0 {
		return // this node's own tokens suffice
	}
	if l.due < want {
		l.due += l.ask(want-l.due, fx)
	}
	names := l.resting
	l.resting = nil
	l.recall(want, want, l.where, names, fx)
}

// ask asks home for want tokens, and returns how many home will owe the baton. A coordinator that
// is home asks for none: it has its whole stock with the baton.
func (l *Late) ask(want int, fx *kmutex.Effects) int {
	switch {
	case want <= 0, l.home == l.where.Holder:
		return 0
	case l.home == l.self:
		l.wanted = want
		l.pay(fx)
	default:
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindLocate, Number: l.where.Number, Holder: l.where.Holder, Want: uint32(want)})
	}
	return want
}

// asked notes, at home, how many tokens the baton needs.
func (l *Late) asked(m *kmutex.Message, fx *kmutex.Effects) {
	if m.Number < l.where.Number {
		return
	}
	if m.Number > l.where.Number {
		l.where, l.wanted = kmutex.Location{Number: m.Number, Holder: m.Holder}, 0
	}
	if !l.coordinator {
		l.wanted = min(l.wanted+int(m.Want), kmutex.MaxK)
		l.pay(fx)
	}
}

// pay sends, from home, tokens that the baton has asked for.
func (l *Late) pay(fx *kmutex.Effects) {
	if l.wanted == 0 {
		return
	}
	give := l.take(&l.stock, l.stock.Len())
	if short := l.wanted - give.Len(); short > 0 {
		give.AddAll(l.take(&l.free, max(short, half(l.free.Len()))))
	}
	paid := min(l.wanted, give.Len())
	if l.wanted -= paid; l.wanted > 0 {
		l.mark()
	}
	if give.Len() > 0 {
		l.send(l.where, give, kmutex.Message{Want: uint32(paid)}, fx)
	}
}

// recall asks the named nodes for tokens, in at most chains chains.
func (l *Late) recall(want, chains int, at kmutex.Location, names []kmutex.Node, fx *kmutex.Effects) {
	chains = min(chains, len(names))
	for i := range chains {
		chain := names[i*len(names)/chains : (i+1)*len(names)/chains]
		fx.Send(chain[0], kmutex.Message{
			Kind: kmutex.KindRecall, Number: at.Number, Holder: at.Holder,
			Want: uint32((want + chains - 1) / chains), Resting: slices.Clone(chain[1:]),
		})
	}
}

// recalled gives up tokens that rest at this node.
func (l *Late) recalled(m *kmutex.Message, fx *kmutex.Effects) {
	at := kmutex.Location{Number: m.Number, Holder: m.Holder}
	switch n, want := l.free.Len(), int(m.Want); {
	case l.coordinator:
		l.list(m.Resting)
		return
	case n >= want:
		give := l.take(&l.free, want)
		names := slices.Clone(m.Resting)
		if l.self != l.home && l.stays() {
			names = append(names, l.self)
		}
		l.send(l.newest(at), give, kmutex.Message{Resting: names}, fx)
	default:
		l.mark()
		if give := l.take(&l.free, n); n > 0 {
			l.send(l.newest(at), give, kmutex.Message{}, fx)
		}
		l.recall(want-n, 1, at, m.Resting, fx)
	}
}

// arrived takes in tokens.
func (l *Late) arrived(m *kmutex.Message, fx *kmutex.Effects) {
	l.serial = max(l.serial, m.Serial)
	const follow = 2 // a token that goes after the baton for longer is better at home
	switch {
	case l.coordinator:
		l.collect(m.Free, m.Serial, m.Resting, paidFor(m.Number, l.got, m.Want))
		l.collectExcess(fx)
	case m.Number > l.got:
		l.park(kmutex.Parcel{Free: m.Free, Number: m.Number, Want: m.Want, Resting: m.Resting}, fx)
	case len(m.Resting) > 0, m.Hops < follow && m.Number > 0:
		l.send(l.where, m.Free, kmutex.Message{Hops: m.Hops + 1, Resting: m.Resting}, fx)
	default:
		l.bringHome(m.Free, fx)
	}
}

// paidFor returns want, the part of the tokens that home owed, if they are for baton got, else 0:
// tokens for another baton pay nothing.
func paidFor(number, got uint64, want uint32) int {
	if number != got {
		return 0
	}
	return int(want)
}

// collect takes in, at the coordinator, free tokens and the names of nodes where others rest. paid
// of the tokens were due from home.
func (l *Late) collect(free kmutex.TokenSet, serial uint64, names []kmutex.Node, paid int) {
	l.free.AddAll(free)
	l.serial = max(l.serial, serial)
	l.list(names)
	l.due = max(0, l.due-paid)
}

// collectExcess asks home for the excess, whether the coordinator lacks tokens or not. Home pays
// with tokens of any class, so it may have to ask again.
func (l *Late) collectExcess(fx *kmutex.Effects) {
	if short := l.short(); l.due < short {
		l.due += l.ask(short-l.due, fx)
	}
}

// list adds names to the list of nodes where tokens may rest.
func (l *Late) list(names []kmutex.Node) {
	for _, n := range names {
		if n != l.self && n != l.home && !slices.Contains(l.resting, n) {
			l.resting = append(l.resting, n)
		}
	}
}

func (l *Late) bringHome(set kmutex.TokenSet, fx *kmutex.Effects) {
	if l.self != l.home {
		fx.Send(l.home, kmutex.Message{Kind: kmutex.KindTokens, Free: set, Serial: l.serial})
		return
	}
	l.stock.AddAll(set)
	l.pay(fx)
}

// send sends tokens to the holder of the baton.
func (l *Late) send(to kmutex.Location, set kmutex.TokenSet, m kmutex.Message, fx *kmutex.Effects) {
	if to.Holder == l.self {
		l.park(kmutex.Parcel{Free: set, Number: to.Number, Resting: m.Resting}, fx)
		return
	}
	m.Kind, m.Free, m.Number, m.Serial = kmutex.KindTokens, set, to.Number, l.serial
	fx.Send(to.Holder, m)
}

func (l *Late) park(p kmutex.Parcel, fx *kmutex.Effects) {
	l.parked = append(l.parked, p)
	for _, q := range p.Free.Tokens() {
		fx.Note(kmutex.Trace{Kind: kmutex.TraceParked, Token: q, Number: p.Number})
	}
}

// newest returns the newer of at and this node's own knowledge of the baton.
func (l *Late) newest(at kmutex.Location) kmutex.Location {
	if at.Number > l.where.Number {
		return at
	}
	return l.where
}

// mark sends the running tokens home when they are released.
func (l *Late) mark() { l.back = l.running.Clone() }

// stays reports whether tokens rest here, or will when their requests end.
func (l *Late) stays() bool {
	will := l.running.Clone()
	will.RemoveAll(l.back)
	return l.free.Len()+will.Len() > 0
}

// half returns half of n, rounded up.
func half(n int) int { return n - n/2 }
