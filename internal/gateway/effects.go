package gateway

import (
	"log/slog"
	"math"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// An event is taken in by package internal/pool. Here its effects are carried out, and
// after them what follows from them. The caller of all these holds the pool's lock, unless
// it is event.

// alive reports whether this incarnation has a part in the pool.
func (p *poolDriver) alive() bool { return p.core != nil && p.core.State() != pool.Void }

// event lets an event happen, and what follows from it, if this incarnation has a part
// in the pool.
func (p *poolDriver) event(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() && p.ctx.Err() == nil {
		do()
		p.settle()
	}
}

// carry carries out what an event asks for, and what follows from that.
func (p *poolDriver) carry(fx *pool.Effects) {
	p.apply(fx)
	p.settle()
}

// settle lets the events happen that follow from one, until none does: the line misses
// a message, a ticket has its slot or has ended, a request ends, another one is due for
// its place.
func (p *poolDriver) settle() {
	for p.alive() {
		switch {
		case p.missed != 0:
			epoch := p.missed
			p.missed = 0
			p.apply(p.core.MessageLost(p.clock(), epoch))
		case len(p.granted) > 0:
			s := p.granted[0]
			p.granted = p.granted[1:]
			p.apply(p.core.TicketGranted(p.clock(), p.wall().UnixNano(), s.ticket, s.grant))
		case len(p.events) > 0:
			for i := 0; i < len(p.events); i++ {
				p.step(p.events[i].kind, p.events[i].number)
			}
			p.events = p.events[:0]
		case p.outOfReach && p.takeOut():
		case len(p.due) > 0 && !p.outOfReach:
			p.step(kmutex.EventAcquire, p.placeNext(p.moment()))
		case p.pull.complete():
			p.endPull()
		case p.turn():
		default:
			return
		}
	}
}

// step takes in an event that cannot be refused: one of this gateway's own.
func (p *poolDriver) step(kind kmutex.EventKind, t kmutex.Request) {
	fx, err := p.core.Step(p.moment().Sub(p.started), &kmutex.Event{Kind: kind, Request: t})
	if err != nil {
		// The driver and its machine disagree about a request. Going on could
		// break the promise; stopping cannot.
		panic("gateway: pool " + p.name + ": " + err.Error())
	}
	p.apply(fx)
}

// apply carries out the effects of one event.
func (p *poolDriver) apply(fx *pool.Effects) {
	p.pace(fx.Begun != nil) // before the first message goes out: a token that leaves counts elsewhere then
	for _, a := range fx.Adopted {
		p.adopt(a)
	}
	if missed := p.out.send(fx.Messages, p.waiting > 1); missed != 0 {
		p.missed = missed
	}
	for _, g := range fx.Grants {
		if p.pull.grant(g.Request) {
			continue
		}
		if s := p.grant(g, p.spec.Epoch); s != nil && s.ticket != nil {
			p.granted = append(p.granted, s)
		}
	}
	if fx.AskTimer {
		p.ask.Reset(p.askInterval())
	}
	for _, t := range fx.Trace {
		p.watch.Moved(t)
	}
	for _, l := range fx.Letters {
		p.out.post(l, func(l pool.Letter) { p.event(func() { p.apply(p.core.Undelivered(p.clock(), l)) }) })
	}
	if fx.ChangeEpoch != 0 {
		p.out.changeEpoch(fx.ChangeEpoch, membership.Why{Spread: fx.Spread, Whole: fx.Whole})
	}
	if fx.WakeAt != 0 {
		p.wake.Reset(fx.WakeAt - p.clock())
	}
	if fx.Begun != nil {
		p.begin(fx.Begun)
	}
	p.forgetTickets(fx.Gone)
	if fx.Moved {
		p.disk.changed()
		p.moved.signal(true)
	}
	p.report(fx)
	p.endTickets(fx.Ended)
}

// pace tells the pacers which share is here now. With a new epoch the parts are those of
// the view.
func (p *poolDriver) pace(begun bool) {
	if begun {
		p.parts = partsOf(p.spec)
	}
	tokens := 0
	if p.parts != (parts{}) && p.alive() {
		tokens = p.tokensHere()
	}
	p.setShare(p.spec.Rate, tokens)
}

// tokensHere counts the tokens whose parts this gateway may move.
func (p *poolDriver) tokensHere() int {
	n := p.core.Machine().TokensHere()
	withheld := p.core.Withheld()
	for t, s := range p.held {
		if t.UsedBy != "" && s.state == slotGranted && !withheld.Has(s.grant.Token) {
			n--
		}
	}
	for g := range p.guests {
		if g.carries {
			n++
		}
	}
	return max(0, n)
}

// endPull ends the pull, if one is going. The caller calls settle.
func (p *poolDriver) endPull() { p.pull.end(&p.claims, p.core.Machine().TokensHere()) }

// begin notes that an epoch has begun here.
func (p *poolDriver) begin(in *kmutex.Install) {
	clear(p.spans)
	for _, g := range in.Running {
		if s := p.slots[g.Request]; s != nil && s.state == slotGranted {
			s.grant = g
		}
	}
	took := p.now().Sub(p.entering)
	attrs := []any{
		slog.Uint64("epoch", in.Epoch), slog.Int("k", in.K),
		slog.String("binding", string(p.spec.Binding)), slog.Bool("home", in.Home == p.self),
	}
	if n := in.Withheld.Len(); n > 0 {
		attrs = append(attrs, slog.Int("withheld", n))
	}
	if p.spec.Epoch > 1 && uint64(p.self) <= p.spec.Began {
		p.watch.Recovered(p.reason, took)
		attrs = append(attrs, slog.String("reason", string(p.reason)), slog.Duration("took", took))
	}
	p.log.Info("pool installed", attrs...)
	p.begun.give()
}

// report logs what has gone wrong.
func (p *poolDriver) report(fx *pool.Effects) {
	epoch := slog.Uint64("epoch", p.spec.Epoch)
	if fx.Err != nil {
		p.log.Error("the pool's epoch began with an error", epoch, slog.Any("error", fx.Err))
	}
	if len(fx.Doubled) > 0 {
		p.watch.AuditFailed()
		p.log.Error("tokens were in use twice: the extra uses end with their requests", epoch, slog.Any("tokens", fx.Doubled))
	}
	if len(fx.Faulty) > 0 {
		p.watch.AuditFailed()
		p.log.Error("tokens are lost or doubled: asking for a new epoch", epoch, slog.Any("tokens", fx.Faulty))
	}
	if len(fx.Unknown) > 0 {
		p.log.Warn("the tickets of lost gateways are not known: the tokens that these may have are withheld until they have expired",
			slog.Any("nodes", fx.Unknown), slog.Int("tokens", p.core.Withheld().Len()), slog.Duration("longest", p.core.View().UnknownFor()))
	}
}

// turnGap is the least time between two looks at all clients, for each of them: so that a look takes a
// small part of the time, however many there are.
const turnGap = 10 * time.Microsecond

// mayTurn reports whether a client that is ahead may take a place because a token is free here.
func (p *poolDriver) mayTurn() bool {
	return p.limits.Fair && p.core.State() == pool.Installed && p.core.Machine().FreeHere() > 0
}

// turn has clients take places in line whose turn it is, and reports whether any is due.
func (p *poolDriver) turn() bool {
	if !p.limits.Fair || p.core.State() != pool.Installed || len(p.clients) == 0 {
		return false
	}
	if !p.turns.running {
		p.turns.running = true
		p.turns.timer.Reset(sharesEvery)
	}
	if p.waiting == 0 {
		p.bound = -1
		return false
	}
	now := p.moment()
	if len(p.due) > 0 || now.Sub(p.turned) < time.Duration(len(p.clients))*turnGap && p.core.Machine().FreeHere() == 0 {
		return false
	}
	// As many places as slots come free until a further one can be asked for; one while nothing is known.
	// Holds may become longer than they were, so there is an end.
	places := 1
	if p.usual > 0 {
		const most = 8 // for each slot
		places += int(math.Ceil(float64(p.spec.K) * min(most, float64(p.askInterval())/float64(p.usual))))
	}
	p.queue.turn(now, p.spec.K, places, p.core.Machine().FreeHere())
	return len(p.due) > 0
}
