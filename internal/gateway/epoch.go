package gateway

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// How a pool moves from epoch to epoch is for package internal/pool to decide.
// Here it is given the agreed views, and what it decides is carried out.

// follow takes over what the agreed view says about the pool.
func (p *poolDriver) follow(self kmutex.Node, view *membership.View, spec membership.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.view
	p.view = view
	if p.core == nil {
		p.self = self
		p.core = pool.New(pool.Config{
			Self: self, Binding: newBinding(spec.Binding), Memory: p.memory,
			Audit: true, Interval: p.askInterval, Placed: p.placed,
			Wall: func() int64 { return p.env.wall().UnixNano() },
		})
	} else if spec.Epoch <= p.spec.Epoch {
		spec.Home, spec.Epoch = p.spec.Home, p.spec.Epoch // only the tickets change within an epoch
	}
	if spec.Epoch > p.spec.Epoch {
		p.entering, p.reason = p.env.now(), reasonOf(p.spec, spec, someLeft(before, view))
		p.endLetters()
	}
	p.spec = spec
	p.lowerShares()
	disk := pool.DiskNone
	if spec.Tickets > 0 {
		disk = p.env.disk.state()
	}
	p.carry(p.core.Follow(p.env.clock(), p.viewOf(view, spec), disk))
}

// loaded goes on when the tickets on disk are there.
func (p *poolDriver) loaded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		p.carry(p.core.Loaded(p.env.clock(), p.env.disk.state()))
	}
}

// viewOf is what the agreed view says about one pool.
func (p *poolDriver) viewOf(view *membership.View, spec membership.Pool) pool.View {
	v := pool.View{
		K: spec.K, Left: spec.Rate != (membership.Rate{}) && spec.Left > 0, Epoch: spec.Epoch, Began: kmutex.Node(spec.Began), Home: spec.Home, Owed: len(spec.Owed) > 0,
		Tickets: spec.Tickets > 0, Wait: view.LeaseWait(),
	}
	for _, m := range view.Members {
		if !m.Witness {
			v.Members = append(v.Members, m.Node)
		}
		v.Newest = max(v.Newest, m.Node)
	}
	for _, l := range view.Lost {
		v.Newest = max(v.Newest, l.Node)
		v.Gone = append(v.Gone, l.Node)
		if v.Tickets && l.At > spec.Tickets {
			v.Lost = append(v.Lost, replication.Lost{Node: l.Node, Successor: l.Successor})
		}
	}
	if v.Tickets {
		self, _ := view.Member(p.self)
		for _, name := range view.Ring().Successors(self.Name, max(1, p.env.cfg.Replicas)) {
			m, _ := view.Named(name)
			v.Successors = append(v.Successors, m.Node)
		}
		v.Witnessed = witnessed(view, self, spec.Tickets)
	}
	return v
}

// witnessed returns [pool.View.Witnessed] for a pool with tickets since a log entry.
func witnessed(view *membership.View, self membership.Member, tickets uint64) func(kmutex.Node) bool {
	return func(node kmutex.Node) bool {
		lost, known := view.LostMember(node)
		if !known || view.Forgotten() > max(tickets, uint64(node)) {
			return false
		}
		stays := make([]replication.Stay, 0, len(view.Members)+len(view.Lost))
		for _, m := range view.Members {
			stays = append(stays, replication.Stay{Name: m.Name, Node: m.Node})
		}
		for _, l := range view.Lost {
			stays = append(stays, replication.Stay{Name: l.Name, Node: l.Node, Out: l.At})
		}
		return replication.Witnessed(replication.Stay{Name: self.Name, Node: self.Node},
			replication.Stay{Name: lost.Name, Node: node, Out: lost.At}, tickets, stays)
	}
}

// reasonOf tells why a pool entered an epoch.
func reasonOf(before, after membership.Pool, left bool) Reason {
	switch {
	case before.Epoch > 0 && (before.K != after.K || before.Parts() != after.Parts()):
		return ReasonK
	case before.Epoch > 0 && before.Rate != after.Rate:
		return ReasonRate
	case len(after.Owed) > len(before.Owed):
		return ReasonLoss
	case len(after.Owed) < len(before.Owed):
		return ReasonReturn
	case left:
		return ReasonLeave
	case after.Spread:
		return ReasonSpread
	default:
		return ReasonAudit
	}
}

// someLeft reports whether a member of the view before is not in the one after.
func someLeft(before, after *membership.View) bool {
	return before != nil && slices.ContainsFunc(before.Members, func(m membership.Member) bool {
		_, in := after.Member(m.Node)
		return !in
	})
}

// placed tells when a waiting ticket took its place in line. The caller holds the
// lock.
func (p *poolDriver) placed(t kmutex.Request) (stamp int64, waits bool) {
	s := p.slots[t]
	if s == nil {
		at, pulled := p.pull.placed[t]
		return at.UnixNano(), pulled
	}
	return s.placed.UnixNano(), true
}

// wakeDue is for the timer that the pool has asked for.
func (p *poolDriver) wakeDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() && p.env.ctx.Err() == nil {
		p.carry(p.core.Wake(p.env.clock()))
	}
}

// carry carries out what an event asks for, and what follows from that. The caller
// holds the lock.
func (p *poolDriver) carry(fx *pool.Effects) {
	p.pace(fx.Begun != nil) // before the first message goes out: a token that leaves counts elsewhere then
	for _, i := range fx.Adopted {
		p.adopt(i)
	}
	missed := p.sendAll(fx.Messages)
	for _, g := range fx.Grants {
		p.grant(g)
	}
	if fx.AskTimer {
		p.ask.Reset(p.askInterval())
	}
	for _, t := range fx.Trace {
		p.watch.Moved(t)
	}
	for _, l := range fx.Letters {
		p.post(l)
	}
	if fx.ChangeEpoch != 0 {
		p.recover(fx.ChangeEpoch, membership.Why{Spread: fx.Spread, Whole: fx.Whole})
	}
	if fx.WakeAt != 0 {
		p.wake.Reset(fx.WakeAt - p.env.clock())
	}
	if fx.Begun != nil {
		p.begun(fx.Begun)
	}
	p.forgetTickets(fx.Gone)
	if fx.Moved {
		p.env.disk.changed()
		p.moved.signal(true)
	}
	p.report(fx)
	p.goOn(missed, slices.Clone(fx.Ended))
}

// goOn lets the events happen that follow from one: a message that the line misses,
// tickets that have ended or got their slots, clients whose turn it is.
func (p *poolDriver) goOn(missed uint64, ended []*pool.Ticket) {
	if missed != 0 {
		p.carry(p.core.MessageLost(p.env.clock(), missed))
	}
	for len(p.granted) > 0 {
		s := p.granted[0]
		p.granted = slices.Delete(p.granted, 0, 1)
		p.carry(p.core.TicketGranted(p.env.clock(), p.env.wall().UnixNano(), s.ticket, s.grant))
	}
	p.endTickets(ended)
	p.placeDue()
	if len(p.pull.placed) == 0 {
		p.endPull()
	}
}

// report tells people what has gone wrong.
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
		p.log.Warn("the tickets of lost gateways are not known: their tokens are withheld until these tickets have expired",
			slog.Any("nodes", fx.Unknown), slog.Duration("longest", p.core.View().UnknownFor()))
	}
}

// begun tells that an epoch has begun here.
func (p *poolDriver) begun(in *kmutex.Install) {
	p.links = nil
	for _, g := range in.Running {
		if s := p.slots[g.Request]; s != nil && s.state == slotGranted {
			s.grant = g
		}
	}
	took := p.env.now().Sub(p.entering)
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
	p.env.begun.give()
}

// recover asks for a new epoch, in the background. The pool asks again if none
// comes and one is needed still.
func (p *poolDriver) recover(epoch uint64, why membership.Why) {
	if p.env.ctx.Err() != nil {
		return
	}
	p.env.wg.Go(func() {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeout(p.env.ctx, patience)
		defer cancel()
		if err := p.env.views.Recover(ctx, p.name, epoch, why); err != nil && p.env.ctx.Err() == nil {
			p.log.Error("the pool cannot move to a new epoch", slog.Uint64("epoch", epoch), slog.Any("error", err))
		}
	})
}
