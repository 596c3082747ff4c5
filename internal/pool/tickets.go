package pool

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// This file has the events of tickets. The pool decides when a ticket ends, what
// goes to the successors and who may be told; the driver has the ticket's slot, as
// it has those of requests, and gives it back when [Effects].Ended says so.

// Tickets returns this incarnation's tickets; nil: the pool has none, or what the
// disk has is not known yet.
func (p *Pool) Tickets() *Tickets { return p.tickets }

// Keep begins to keep a ticket that its driver has put in line: not before
// [Pool.TicketGranted], if it was granted at once.
func (p *Pool) Keep(now time.Duration, t *Ticket) *Effects {
	p.fx.reset()
	if !t.Granted {
		p.note(t)
	}
	p.tickets.keep(now, t, 0)
	return p.done(now)
}

// TicketGranted notes that t has its slot; wall is the time by the wall clock, in
// nanoseconds.
func (p *Pool) TicketGranted(now time.Duration, wall int64, t *Ticket, g kmutex.Grant) *Effects {
	p.fx.reset()
	t.Granted, t.Grant, t.Epoch = true, g, p.installed
	if t.HoldMax > 0 {
		t.ends, t.endsAt = now+t.HoldMax, wall+int64(t.HoldMax)
		if p.tickets.byID[t.ID] == t {
			t.Expires = min(t.Expires, t.ends)
			heap.Fix(&p.tickets.due, t.index)
		}
	}
	p.note(t)
	return p.done(now)
}

// Sign notes a sign of t's holder.
func (p *Pool) Sign(now time.Duration, t *Ticket) *Effects {
	p.fx.reset()
	t.sign(now)
	heap.Fix(&p.tickets.due, t.index)
	return p.done(now)
}

// Await notes that a call of the holder of a waiting ticket begins to wait (1) or
// has ended (-1). Meanwhile the ticket does not expire in line.
func (p *Pool) Await(now time.Duration, t *Ticket, by int) *Effects {
	if t.Granted {
		p.fx.reset()
		t.waiters = 0
		return &p.fx
	}
	t.waiters = max(0, t.waiters+by)
	return p.Sign(now, t)
}

// Use lets one request have the ticket's slot, and no other ever. The call that asks
// for it has a name that nobody else has; when its answer is lost it asks again, here or
// at the successor, and is answered the same. One without a name cannot. It fails with
// admission.ErrTicketWaiting or admission.ErrTicketUsed, or if the name is too long.
func (p *Pool) Use(now time.Duration, t *Ticket, call string) (*Effects, error) {
	p.fx.reset()
	switch {
	case !t.Granted:
		return &p.fx, admission.ErrTicketWaiting
	case t.Used && (call == "" || call != t.UsedBy):
		return &p.fx, admission.ErrTicketUsed
	case len(call) > replication.MaxUsedBy:
		return &p.fx, errCall
	}
	t.Used, t.UsedBy = true, call
	p.note(t)
	t.sign(now)
	heap.Fix(&p.tickets.due, t.index)
	return p.done(now), nil
}

// Finish ends t on its holder's word: call is empty. A slot that a request uses is that
// request's: only its own call may end it, or the ticket's time to live. For others it
// fails with admission.ErrTicketUsed.
func (p *Pool) Finish(now time.Duration, t *Ticket, call string) (*Effects, error) {
	p.fx.reset()
	if call != t.UsedBy {
		return &p.fx, admission.ErrTicketUsed
	}
	how := admission.EndReleased
	if !t.Granted {
		how = admission.EndCancelled
	}
	p.endTicket(t, how)
	return p.done(now), nil
}

// Written takes in that the disk has the table up to a version, or will not.
func (p *Pool) Written(version uint64) {
	if p.tickets != nil {
		p.tickets.written = version
	}
}

// note writes t into the table; with the end of the event the change goes to the
// successors.
func (p *Pool) note(t *Ticket) {
	if err := p.tickets.write(t); err != nil {
		p.fx.Err = fmt.Errorf("pool: a ticket cannot be kept: %w", err)
	}
	p.fx.Moved = true
}

func (p *Pool) endTicket(t *Ticket, how admission.Ending) {
	p.tickets.remove(t, how)
	p.fx.Ended = append(p.fx.Ended, t)
	p.fx.Moved = true
}

// expire ends the tickets of whose holders there was no sign for long.
func (p *Pool) expire(now time.Duration) {
	ts := p.tickets
	for ts != nil && len(ts.due) > 0 && ts.due[0].Expires <= now {
		t := ts.due[0]
		if t.waiters > 0 {
			t.sign(now)
		}
		switch {
		case t.Expires > now:
			heap.Fix(&ts.due, t.index)
		case t.ends > 0 && t.ends <= now:
			p.endTicket(t, admission.EndHoldMax)
		default:
			p.endTicket(t, admission.EndExpired)
		}
	}
}

func (p *Pool) nextExpiry() time.Duration {
	if p.tickets == nil || len(p.tickets.due) == 0 {
		return 0
	}
	return max(p.tickets.due[0].Expires, 1)
}

// followTickets brings the tickets in line with the view, and begins to keep them
// when the first is taken anywhere.
func (p *Pool) followTickets() {
	v := &p.view
	if !v.Tickets || p.disk == DiskUnread {
		return
	}
	if p.tickets == nil {
		p.tickets = newTickets(p.cfg.Self, p.cfg.Memory.Replicas(), p.disk)
	}
	ts := p.tickets
	ts.replicator.Follow(v.Successors, v.Members)
	member := func(n kmutex.Node) bool { return slices.Contains(v.Members, n) }
	ts.replicas.Follow(member, v.gone, slices.Max(v.Members))
	ts.table.Forget(v.gone)
	p.witness()
	p.fx.Moved = true
}

// witness notes of lost gateways that they had no tickets: this one must have a replica of
// whatever they told, and has none. Nothing of theirs is taken in any more.
func (p *Pool) witness() {
	ts := p.tickets
	for _, l := range p.view.Lost {
		if l.Successor != p.cfg.Self || p.view.Witnessed == nil || ts.replicas.Of(l.Node) != nil ||
			ts.Absorbed(l.Node) || !p.view.Witnessed(l.Node) {
			continue
		}
		if err := ts.replicas.Restore(replication.NewTable(l.Node).Since(0)); err != nil {
			p.fx.Err = fmt.Errorf("pool: node %d had no tickets: %w", l.Node, err)
		}
	}
}

// left is this gateway's word on what lost ones left.
func (p *Pool) left() *replication.Report {
	if p.tickets == nil {
		return nil
	}
	r := replication.NewReport(p.tickets.replicator, p.tickets.replicas, p.view.gone)
	return &r
}

// adopt takes over what lost gateways left, before the machine begins the epoch
// in which it runs or waits here, and returns the numbers of tickets that the
// machine is to give up again. A lost gateway may not know yet that it is, and
// renew its tickets as long as its lease runs: their first time to live here begins
// after that.
func (p *Pool) adopt(now time.Duration, in []replication.HandOver) (refused []kmutex.Request) {
	ts := p.tickets
	for _, i := range in {
		if ts == nil {
			return append(refused, i.Tickets...)
		}
		version, err := ts.table.Absorb(i)
		if err != nil {
			p.fx.Err = fmt.Errorf("pool: tickets of node %d cannot be taken over: %w", i.Owner, err)
			refused = append(refused, i.Tickets...)
			continue
		}
		for n, r := range i.Records {
			if ts.byID[r.ID] != nil {
				refused = append(refused, i.Tickets[n])
				continue
			}
			t := &Ticket{
				ID: r.ID, TTL: r.TTL, HoldMax: r.HoldMax, Stamp: r.Stamp, Note: r.Note, Used: r.Used, UsedBy: r.UsedBy,
				version: version, endsAt: r.Ends,
			}
			if r.State == admission.TicketGranted {
				t.Granted, t.Epoch = true, r.Fence.Epoch
				t.Grant = kmutex.Grant{Request: i.Tickets[n], Token: kmutex.NoToken, Serial: r.Fence.Serial}
			}
			p.adoptEnd(now, t)
			ts.keep(now, t, p.view.Wait+KeepFor(t.TTL))
			p.fx.Adopted = append(p.fx.Adopted, Adopted{t, i.Tickets[n]})
		}
	}
	return refused
}

// adoptEnd takes over when t's hold ends, which the lost gateway wrote down by its
// wall clock. Here another one is read, and either may be wrong by any amount. So the
// end is not before anything that the lost gateway may have promised is over, and not
// later than if the hold had begun when that gateway could go on no longer.
func (p *Pool) adoptEnd(now time.Duration, t *Ticket) {
	if t.HoldMax == 0 || t.endsAt == 0 {
		return
	}
	wall := p.cfg.Wall()
	least := KeepFor(min(t.TTL, t.HoldMax))
	left := time.Duration(t.endsAt - wall)
	left = min(max(left, p.view.Wait+least), p.view.Wait+max(t.HoldMax, least))
	t.ends, t.endsAt = now+left, wall+int64(left)
}

// renewTickets brings the table in line with the epoch that has begun, in one push:
// slots that were taken over have their tokens back, except those whose tokens
// others have, which are gone.
func (p *Pool) renewTickets(a *replication.EpochAnswer) {
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
		p.note(t)
	}
	slices.SortFunc(gone, func(a, b *Ticket) int { return cmp.Compare(a.Grant.Request, b.Grant.Request) })
	for _, t := range gone {
		ts.remove(t, admission.EndLost)
		p.fx.Gone = append(p.fx.Gone, t)
	}
	ts.replicas.Settled(a.Settled...)
	p.fx.Moved = true
}

// pushTickets sends the successors what they lack.
func (p *Pool) pushTickets() {
	if p.tickets == nil {
		return
	}
	for _, out := range p.tickets.replicator.Next() {
		p.fx.Letters = append(p.fx.Letters, Letter{To: out.To, Push: out.Push})
	}
}

// takePush takes in what an owner of tickets sends its successor. What a lost owner
// has sent last may come late: then its replicas are reported already.
func (p *Pool) takePush(from kmutex.Node, push *replication.Push) error {
	switch {
	case p.tickets == nil:
		return ErrNoTickets
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
	p.fx.Letters = append(p.fx.Letters, Letter{To: from, Ack: &ack})
	return nil
}

func (p *Pool) takeAck(from kmutex.Node, a *replication.Ack) {
	if p.tickets != nil {
		p.tickets.replicator.Acked(from, *a)
		p.fx.Moved = true
	}
}

// voidTickets ends the tickets with their incarnation. What it had is from now on a
// replica of what a lost owner left.
func (p *Pool) voidTickets() error {
	if p.tickets == nil {
		return nil
	}
	return p.tickets.replicas.Restore(p.tickets.table.Since(0))
}
