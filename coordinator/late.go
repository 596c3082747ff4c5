package coordinator

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Late binds a request to a token when the token is free. A free token rests where it
// was last used, and a request there takes it without a message, until the coordinator
// needs it. The zero value is ready for Install.
//
// These are the rules. There are n free tokens at this node. To mark is to send each token that
// runs here now home when it is released.
//
//	enter, without baton:  n > 0 -> grant, no message
//	release:               marked -> to home, into its stock; not marked -> it rests here
//	the coordinator lacks w tokens:
//	                       ask home for w, less what it was asked for before; recall w from the listed nodes
//	baton goes to x:       x has just asked  -> half of n goes along, the rest stays; clear the marks
//	                       x has waited here -> all n go along; mark; recall everything if n > 0,
//	                                            else recall 1 and ask home for 2
//	                                            (the same while tokens beyond k are missing)
//	                       tokens stay here  -> this node joins the list, which goes along
//	recall(w):             n >= w -> give w; the names go back with them
//	                       n < w  -> give all; mark; forward the recall along the other names
//	home is asked for w:   give the stock; if too little, also half of the resting tokens, or as many as are short; still too little -> mark
//	tokens for a baton:    it is here -> free; it is to come -> park; it has left -> after it, at most twice, else home
//
// The list names every node where tokens may rest, except home and the coordinator. A recall
// carries the names that are still to be asked. Home's own requests cannot take its stock: other
// requests have waited longer for it.
type Late struct {
	self, home kmutex.Node
	k          int
	// classes of the tokens; nil: all are alike. This node cannot use the barred ones.
	classes []kmutex.TokenSet
	barred  kmutex.TokenSet
	// tokens are all tokens of the epoch; nil: not known.
	tokens kmutex.TokenSet
	// serial is the largest serial that this node knows of.
	serial uint64

	// running are the tokens of this node's requests; back are the marked ones among them.
	running, back kmutex.TokenSet
	// free tokens are here; at the coordinator they are with the baton.
	free kmutex.TokenSet

	// where is the newest baton that this node knows of; got is the number of the last baton
	// that was here. parked tokens wait for a later baton.
	where  kmutex.Location
	got    uint64
	parked []kmutex.Parcel

	// At the coordinator: excess[i] free tokens of class i stay free; resting is the list,
	// oldest first; due is how many tokens home was asked for and has not sent.
	coordinator bool
	excess      []uint32
	counter     int
	resting     []kmutex.Node
	due         int

	// At home: stock are the returned tokens that no coordinator has asked for; wanted is how
	// many tokens home owes the baton in where.
	stock  kmutex.TokenSet
	wanted int
}

var _ kmutex.Binding = (*Late)(nil)

// Install implements [kmutex.Binding].
func (l *Late) Install(self kmutex.Node, in *kmutex.Install) error {
	rests := slices.Contains(in.Resting, self)
	if in.Holder != self && !rests && in.Free.Len() > 0 {
		return errors.New("free tokens without the baton")
	}
	*l = Late{
		self: self, home: in.Home, k: in.K, classes: in.Classes, barred: l.barred, tokens: in.Tokens, free: in.Free.Clone(),
		where: kmutex.Location{Holder: in.Holder}, coordinator: in.Holder == self,
	}
	for _, g := range in.Running {
		if !in.Withheld.Has(g.Token) {
			l.running.Add(g.Token)
		}
	}
	if !rests {
		l.mark()
	}
	if l.coordinator {
		l.excess = slices.Clone(in.Excess)
		l.list(in.Resting)
	}
	switch { // the excess is collected at the coordinator, whether it lacks tokens or not
	case in.Holder == in.Home:
	case l.coordinator:
		l.due = total(in.Excess)
	case self == in.Home:
		l.wanted = total(in.Excess)
	}
	return nil
}

// Spreads implements [kmutex.Binding].
func (*Late) Spreads() bool { return true }

// Asks implements [kmutex.Binding]: a node may have many batches in line.
func (*Late) Asks() bool { return true }

// Ask implements [kmutex.Binding]: nothing is bound yet.
func (*Late) Ask([]kmutex.Request, *kmutex.Effects) (kmutex.Seat, int) { return kmutex.Seat{}, 0 }

// Enter implements [kmutex.Binding]: a token that rests here may be taken at once.
func (l *Late) Enter(t kmutex.Request, fx *kmutex.Effects) bool {
	if l.coordinator {
		return false
	}
	q, ok := without(l.free, l.barred).Next(0)
	if ok {
		l.grant(t, q, fx)
	}
	return ok
}

// Assign implements [kmutex.Binding]: each request gets the next free token at or after
// the counter.
func (l *Late) Assign(requests []kmutex.Request, fx *kmutex.Effects) int {
	for i, t := range requests {
		q, ok := without(l.spare(), l.barred).Next(kmutex.Token(l.counter))
		if !ok {
			l.lack(len(requests)-i, fx)
			return i
		}
		if l.counter = int(q) + 1; l.counter >= l.k && l.classes == nil {
			l.counter = 0
		}
		l.grant(t, q, fx)
	}
	return len(requests)
}

func (l *Late) grant(t kmutex.Request, q kmutex.Token, fx *kmutex.Effects) {
	l.free.Remove(q)
	l.running.Add(q)
	l.serial = serialBeyond(l.serial, q)
	fx.Grant(t, q, l.serial)
}

// serialBeyond returns the smallest serial of q that is larger than last. Each token has one of
// every MaxK consecutive numbers, so no two grants have the same serial.
func serialBeyond(last uint64, q kmutex.Token) uint64 {
	s := last - last%kmutex.MaxK + uint64(q) + 1
	if s <= last {
		s += kmutex.MaxK
	}
	return s
}

// Depart implements [kmutex.Binding].
func (l *Late) Depart(next kmutex.Place, waited bool, baton *kmutex.Message, fx *kmutex.Effects) {
	spare := l.spare()
	n, short := spare.Len(), l.short()
	var keep kmutex.TokenSet
	l.where = kmutex.Location{Number: baton.Number, Holder: next.Node}
	l.coordinator = false
	names := slices.DeleteFunc(l.resting, func(n kmutex.Node) bool { return n == next.Node })
	ahead := 0
	switch {
	case !waited && short == 0: // else every released token is collected
		keep, l.back = without(spare, l.barred).Clone(), nil
		l.take(&keep, half(keep.Len()))
	case n > 0:
		l.mark()
		l.recall(l.k, 1, l.where, names, fx)
		names = nil
	default:
		l.mark()
		l.recall(1, 1, l.where, names, fx)
		names, ahead = nil, min(2, l.k)
	}
	if n == 0 || short > 0 {
		baton.Want = uint32(l.ask(ahead+short, fx))
	}
	baton.Free, l.free = without(l.free, keep).Clone(), keep
	baton.Counter, baton.Excess, baton.Serial = uint32(l.counter), l.excess, l.serial
	if l.self != l.home && l.stays() {
		names = append(names, l.self)
	}
	baton.Resting = names
	l.resting, l.due, l.excess = nil, 0, nil
}

// CheckBaton implements [kmutex.Binding].
func (l *Late) CheckBaton(baton *kmutex.Message) error {
	if baton.Tails != nil || baton.Counter > kmutex.MaxK || baton.Counter >= uint32(l.k) && l.classes == nil || baton.Want > kmutex.MaxK ||
		baton.Excess != nil && len(baton.Excess) != max(1, len(l.classes)) {
		return errors.New("not a baton of this pool")
	}
	return l.checkTokens(baton.Free)
}

// checkTokens returns why the tokens of set cannot arrive here.
func (l *Late) checkTokens(set kmutex.TokenSet) error {
	here, _ := l.FreeHere()
	here.AddAll(l.running)
	for _, q := range set.Tokens() {
		switch {
		case q >= kmutex.MaxK || l.tokens != nil && !l.tokens.Has(q):
			return errors.New("no such token")
		case here.Has(q):
			return errors.New("a token that is here already")
		}
	}
	return nil
}

// Arrive implements [kmutex.Binding]: home's stock, if this node is home, and the tokens parked for
// this baton join the free tokens.
func (l *Late) Arrive(baton *kmutex.Message, fx *kmutex.Effects) {
	l.coordinator, l.got = true, baton.Number
	l.where = kmutex.Location{Number: baton.Number, Holder: l.self}
	l.counter, l.excess = int(baton.Counter), baton.Excess
	l.free.AddAll(l.stock)
	l.stock, l.wanted = nil, 0
	if l.self != l.home {
		l.due = int(baton.Want)
	}
	l.collect(baton.Free, baton.Serial, baton.Resting, 0)
	l.parked = slices.DeleteFunc(l.parked, func(p kmutex.Parcel) bool {
		arrived := p.Number <= l.got
		if arrived {
			l.collect(p.Free, 0, p.Resting, paidFor(p.Number, l.got, p.Want))
		}
		return arrived
	})
	l.collectExcess(fx)
}

// Free implements [kmutex.Binding].
func (l *Late) Free(q kmutex.Token, fx *kmutex.Effects) {
	marked := l.back.Has(q)
	l.running.Remove(q)
	l.back.Remove(q)
	if l.coordinator || !marked {
		l.free.Add(q)
		return
	}
	var one kmutex.TokenSet
	one.Add(q)
	l.bringHome(one, fx)
}

// Bar implements [kmutex.Binding]. Tokens that rest here stay: the coordinator can find them.
func (l *Late) Bar(barred kmutex.TokenSet) bool {
	if slices.Equal(l.barred, barred) {
		return false
	}
	l.barred = barred.Clone()
	return true
}

// Shed implements [kmutex.Binding].
func (l *Late) Shed() kmutex.TokenSet {
	if len(l.barred) == 0 {
		return nil
	}
	shed := l.spare().Clone()
	shed.KeepAll(l.barred)
	l.free = without(l.free, shed)
	return shed
}

// Offer implements [kmutex.Binding].
func (l *Late) Offer(next, before kmutex.Place, set kmutex.TokenSet, fx *kmutex.Effects) {
	fx.Send(next.Node, kmutex.Message{
		Kind: kmutex.KindOffer, Free: set, Batch: next.Batch, Origin: before.Node, Other: before.Batch, Changes: before.Changes, Serial: l.serial,
	})
}

// TakeOffer implements [kmutex.Binding].
func (l *Late) TakeOffer(m *kmutex.Message) error {
	if m.Batch == 0 || (m.Origin == 0) != (m.Other == 0) || m.Origin == 0 && (len(m.Free) > 0 || m.Changes > 0) {
		return errors.New("an offer to nobody, or of nobody")
	}
	if err := l.checkTokens(m.Free); err != nil {
		return err
	}
	l.serial = max(l.serial, m.Serial)
	return nil
}

// Use implements [kmutex.Binding]: the token goes home when t ends.
func (l *Late) Use(t kmutex.Request, q kmutex.Token, fx *kmutex.Effects) bool {
	if l.barred.Has(q) {
		return false
	}
	l.grant(t, q, fx)
	l.back.Add(q)
	return true
}

// Return implements [kmutex.Binding].
func (l *Late) Return(set kmutex.TokenSet, fx *kmutex.Effects) {
	switch {
	case len(set) == 0:
	case l.coordinator:
		l.free.AddAll(set)
	default:
		l.bringHome(set, fx)
	}
}

// Cancel implements [kmutex.Binding]: waiting requests stay in their batches.
func (l *Late) Cancel(kmutex.Request) bool { return false }

// Waiting implements [kmutex.Binding].
func (l *Late) Waiting(ts []kmutex.Request) []kmutex.Request { return ts }

// Receive implements [kmutex.Binding].
func (l *Late) Receive(m *kmutex.Message, fx *kmutex.Effects) error {
	if m.Want > kmutex.MaxK {
		return errors.New("more tokens than there can be")
	}
	switch m.Kind {
	case kmutex.KindLocate:
		if l.self != l.home || m.Holder == 0 || m.Holder == l.self {
			return errors.New("not for this node")
		}
		l.asked(m, fx)
		return nil
	case kmutex.KindRecall:
		if m.Holder == 0 || m.Holder == l.self || m.Want == 0 || slices.Contains(m.Resting, 0) || slices.Contains(m.Resting, l.self) {
			return errors.New("a recall that nobody sends")
		}
		l.recalled(m, fx)
		return nil
	case kmutex.KindTokens:
		if slices.Contains(m.Resting, 0) {
			return errors.New("no node")
		}
		if err := l.checkTokens(m.Free); err != nil {
			return err
		}
		l.arrived(m, fx)
		return nil
	default:
		return errors.New("not a message of late binding")
	}
}

// FreeHere implements [kmutex.Binding].
func (l *Late) FreeHere() (free kmutex.TokenSet, kept int) {
	free = l.free.Clone()
	if l.coordinator {
		kept = free.Len() - l.spare().Len()
	}
	free.AddAll(l.stock)
	for _, p := range l.parked {
		free.AddAll(p.Free)
	}
	return free, kept
}

// Export implements [kmutex.Binding].
func (l *Late) Export(s *kmutex.State) {
	s.Counter, s.Free, s.Serial = uint32(l.counter), l.free.Clone(), l.serial
	s.Barred = l.barred.Clone()
	s.Back, s.Stock, s.Where = l.back.Clone(), l.stock.Clone(), l.where
	s.Resting, s.Due, s.Wanted = slices.Clone(l.resting), l.due, l.wanted
	s.Parked = slices.Clone(l.parked)
}

// Clone implements [kmutex.Binding].
func (l *Late) Clone() kmutex.Binding {
	c := *l
	c.running, c.back, c.free, c.stock = l.running.Clone(), l.back.Clone(), l.free.Clone(), l.stock.Clone()
	c.parked, c.resting, c.excess = slices.Clone(l.parked), slices.Clone(l.resting), slices.Clone(l.excess)
	return &c
}
