package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// followTickets adapts the tickets to the view. They begin when the first ticket is taken
// at any gateway.
func (p *Pool) followTickets() {
	v := &p.view
	if !v.Tickets || p.disk == DiskUnread {
		return
	}
	if p.tickets == nil {
		replicas := p.cfg.Memory.Replicas()
		if v.Missed != nil {
			kept := func(n kmutex.Node) bool { return replicas.Of(n) != nil && !slices.Contains(p.cfg.Memory.unread, n) }
			replicas.Drop(func(owner kmutex.Node) bool { return v.Missed(owner, kept) })
		}
		p.cfg.Memory.unread = nil
		p.tickets = newTickets(p.cfg.Self, replicas, p.disk)
	}
	ts := p.tickets
	ts.replicator.Follow(v.Successors, v.Members)
	member := func(n kmutex.Node) bool { return slices.Contains(v.Members, n) }
	ts.replicas.Follow(member, v.gone, slices.Max(v.Members))
	ts.table.Forget(v.gone)
	p.witness()
	p.fx.Moved = true
}

// witness notes which lost gateways had no tickets: this gateway would have a replica of
// every ticket that they showed anybody, and has none. It takes in nothing more of theirs.
func (p *Pool) witness() {
	ts := p.tickets
	for _, l := range p.view.Lost {
		if l.Successor != p.cfg.Self || p.view.Witnessed == nil || ts.replicas.Of(l.Node) != nil ||
			ts.Absorbed(l.Node) || !p.view.Witnessed(l.Node) {
			continue
		}
		if err := ts.replicas.Restore(replication.NewTable(l.Node).Since(0)); err != nil {
			p.fx.Err = fmt.Errorf("node %d had no tickets: %w", l.Node, err)
		}
	}
}

// pushTickets sends the successors the changes that they lack.
func (p *Pool) pushTickets() {
	if p.tickets == nil {
		return
	}
	for _, out := range p.tickets.replicator.Next() {
		p.post(Letter{To: out.To, Push: out.Push})
	}
}

// takePush takes in what an owner of tickets sends to its successor. The last push of a lost
// owner may come late: then its replicas have been reported already.
func (p *Pool) takePush(now time.Duration, from kmutex.Node, push *replication.Push) error {
	switch {
	case p.tickets == nil:
		return ErrNotYet
	case push.Owner != from:
		return fmt.Errorf("%w: node %d pushes tickets of node %d", errLetter, from, push.Owner)
	case p.view.gone(from):
		return nil
	}
	ack, err := p.tickets.replicas.Receive(push)
	if err != nil && !errors.Is(err, replication.ErrGap) {
		return fmt.Errorf("%w: %w", errLetter, err)
	}
	p.fx.Moved = true
	p.tickets.received++
	if l := (Letter{To: from, Ack: &ack}); p.tickets.disk == DiskRead { // after a restart nothing else is known again
		l.unwritten = p.tickets.received
		p.again = append(p.again, retry{now + writeWithin, l})
	} else {
		p.post(l)
	}
	return nil
}

func (p *Pool) takeAck(from kmutex.Node, a *replication.Ack) {
	if p.tickets != nil {
		p.tickets.replicator.Acked(from, *a)
		p.fx.Moved = true
	}
}

// left reports what this gateway knows of the tickets of lost ones.
func (p *Pool) left() *replication.Report {
	if p.tickets == nil {
		return nil
	}
	r := replication.NewReport(p.tickets.replicator, p.tickets.replicas, p.view.gone)
	return &r
}

// adopt takes over tickets of lost gateways, before the machine begins the epoch in which
// they run or wait here. It returns the requests that the machine has to cancel again.
func (p *Pool) adopt(now time.Duration, in []replication.HandOver) (refused []kmutex.Request) {
	ts := p.tickets
	for _, i := range in {
		if ts == nil {
			return append(refused, i.Tickets...)
		}
		version, err := ts.table.Absorb(i)
		if err != nil {
			p.fx.Err = fmt.Errorf("tickets of node %d cannot be taken over: %w", i.Owner, err)
			refused = append(refused, i.Tickets...)
			continue
		}
		for n, r := range i.Records {
			if ts.byID[r.ID] != nil {
				refused = append(refused, i.Tickets[n])
				continue
			}
			t := &Ticket{
				ID: r.ID, TTL: r.TTL, HoldMax: r.HoldMax, Stamp: r.Stamp, Note: r.Note, UsedBy: r.UsedBy,
				version: version, adopted: true, silent: true, endsAt: r.Ends,
			}
			if r.Used && r.UsedBy == "" {
				t.UsedBy = "a call without a name" // of an older version: only its time to live ends it
			}
			if r.State == admission.TicketGranted {
				t.Granted, t.Epoch = true, r.Fence.Epoch
				t.Grant = kmutex.Grant{Request: i.Tickets[n], Token: kmutex.NoToken, Serial: r.Fence.Serial}
			}
			p.adoptTimes(now, t, &r)
			if ts.keep(t); !t.Granted { // else it is noted with its token
				p.note(now, t)
			}
			p.fx.Adopted = append(p.fx.Adopted, Adopted{t, i.Tickets[n]})
		}
	}
	return refused
}

// adoptTimes sets when t ends here; r is the lost gateway's record of it. That gateway may
// not know yet that it is lost, and renew its tickets until its lease ends: their first
// time to live here begins after that. If it left in order, it recorded the time left.
//
// The lost gateway recorded the end of t's hold by its own wall clock. This gateway reads
// another one, and either may be wrong by any amount. So the end is not before all that
// the lost gateway may have promised is over, and not later than if the hold had begun
// when that gateway had to stop.
func (p *Pool) adoptTimes(now time.Duration, t *Ticket, r *replication.Record) {
	left := p.view.Wait + KeepFor(t.TTL)
	if r.Left > 0 {
		left = min(left, r.Left)
	}
	t.Expires = now + left
	if t.HoldMax == 0 || t.endsAt == 0 {
		return
	}
	wall := p.cfg.Wall()
	least := KeepFor(min(t.TTL, t.HoldMax))
	left = max(time.Duration(t.endsAt-wall), p.view.Wait+least)
	if r.HoldLeft > 0 {
		left = r.HoldLeft
	}
	left = min(left, p.view.Wait+max(t.HoldMax, least))
	t.ends, t.endsAt = now+left, wall+int64(left)
	t.Expires = min(t.Expires, t.ends)
}

// renewTickets adapts the table to the epoch that has begun, in one push. Slots that were
// taken over have their tokens again; those whose tokens others have are gone.
func (p *Pool) renewTickets(now time.Duration, a *replication.EpochAnswer) {
	ts := p.tickets
	if ts == nil {
		return
	}
	tokens := make(map[kmutex.Request]kmutex.Grant, len(a.Install.Running))
	for _, g := range a.Install.Running {
		tokens[g.Request] = g
	}
	var gone, changed []*Ticket
	for _, t := range ts.byID {
		if !t.Granted {
			continue
		}
		switch g, runs := tokens[t.Grant.Request]; {
		case !runs && t.Grant.Request >= kmutex.FirstAdopted && t.Grant.Token == kmutex.NoToken:
			gone = append(gone, t)
		case runs && g != t.Grant:
			t.Grant = g
			changed = append(changed, t)
		}
	}
	slices.SortFunc(changed, func(a, b *Ticket) int { return cmp.Compare(a.Grant.Request, b.Grant.Request) })
	for _, t := range changed {
		p.note(now, t)
	}
	slices.SortFunc(gone, func(a, b *Ticket) int { return cmp.Compare(a.Grant.Request, b.Grant.Request) })
	for _, t := range gone {
		ts.remove(t, admission.EndLost)
		p.fx.Gone = append(p.fx.Gone, t)
	}
	ts.replicas.Settled(a.Settled...)
	p.fx.Moved = true
}

// voidTickets ends the tickets with their incarnation. From now on they are a replica of a
// lost owner's, an empty one if the incarnation ended before its disk was read.
func (p *Pool) voidTickets() error {
	switch {
	case p.tickets != nil:
		return p.tickets.replicas.Restore(p.tickets.table.Since(0))
	case p.view.Tickets:
		p.cfg.Memory.unread = append(p.cfg.Memory.unread, p.cfg.Self)
		return p.cfg.Memory.Replicas().Restore(replication.NewTable(p.cfg.Self).Since(0))
	default:
		return nil
	}
}
