package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/replication"
)

// ticketManager takes in what holders of tickets ask of a pool at this gateway, and
// waits until they may be answered. What becomes of the tickets is for package
// internal/pool to decide: when one ends, what goes to the successors, who may be told.
// The driver carries that out, and does not know the manager.
type ticketManager struct{ *poolDriver }

// take puts a new ticket in line.
func (p ticketManager) take(req admission.Request, ttl time.Duration, note string) (*pool.Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil, admission.Isolated
	}
	ts := p.core.Tickets()
	switch limit := p.cfg.ClientTickets; {
	case ts == nil:
		return nil, admission.Isolated
	case limit > 0 && req.Client != "" && ts.Of(req.Client) >= limit:
		return nil, &admission.Refusal{Reason: admission.ClientLimit, Limit: limit}
	case ts.Full():
		return nil, admission.QueueFull
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	t := &pool.Ticket{
		ID: replication.NewID(secret, p.self), Client: req.Client, TTL: ttl, HoldMax: req.HoldMax, Note: note,
		Stamp: p.env.now().UnixNano(),
	}
	s := new(claim)
	if err := p.queue(s, req, t); err != nil {
		return nil, err
	}
	p.placeNow(s)
	t.Stamp = s.since.UnixNano()
	p.held[t] = s
	p.carry(p.core.Keep(p.env.clock(), t))
	return t, nil
}

// enable makes the agreed view say that the pool has tickets, if it is the
// first; from then on what lost gateways leave is looked after.
func (p ticketManager) enable(ctx context.Context) error {
	for {
		changed := p.env.views.Changed()
		p.mu.Lock()
		alive := p.alive()
		ready := alive && p.core.Tickets() != nil
		followed := p.moved.wait()
		p.mu.Unlock()
		switch {
		case !alive:
			return admission.Isolated
		case ready:
			return nil
		}
		if err := p.env.views.UseTickets(ctx, p.name); err != nil {
			return fmt.Errorf("%w: %w", admission.Isolated, err)
		}
		select {
		case <-changed:
		case <-followed: // the view is here, and now this pool has followed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// find returns a ticket. The caller holds the lock.
func (p ticketManager) find(id string) (*pool.Ticket, error) {
	if !p.alive() || p.core.Tickets() == nil || !p.env.entitled(p.self) {
		return nil, admission.ErrElsewhere
	}
	ts := p.core.Tickets()
	if t := ts.Get(id); t != nil {
		return t, nil
	}
	if how, known := ts.Ended(id); known {
		return nil, &admission.EndedError{How: how}
	}
	return nil, admission.ErrUnknownTicket
}

// await returns the ticket when ready holds, or after wait, as soon as its
// successors know of that state. If one of them does not answer for long, the
// ticket is out of reach: soon that one is suspended.
func (p ticketManager) await(ctx context.Context, id string, wait time.Duration, ready func(*pool.Ticket) bool) (admission.Ticket, error) {
	const patience = 5 * time.Second
	over := wait <= 0
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	if over {
		timeout.Reset(patience)
	}
	for {
		p.mu.Lock()
		t, err := p.find(id)
		if err != nil {
			p.mu.Unlock()
			return admission.Ticket{}, err
		}
		if (ready(t) || over) && p.core.Tickets().Synced(t) {
			out, stamp := p.describe(t), t.Stamp
			p.mu.Unlock()
			if !out.Granted {
				out.Position, out.ETA = p.position(ctx, stamp)
			}
			return out, nil
		}
		moved := p.moved.wait()
		p.mu.Unlock()
		select {
		case <-moved:
		case <-timeout.C:
			if over {
				return admission.Ticket{}, admission.ErrElsewhere
			}
			over = true
			timeout.Reset(patience)
		case <-ctx.Done():
			return admission.Ticket{}, context.Cause(ctx)
		}
	}
}

// anyState holds in every state: no change is waited for.
func anyState(*pool.Ticket) bool { return true }

func (p ticketManager) test(ctx context.Context, c ticketCall) (admission.Ticket, error) {
	count := func(by int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t, err := p.find(c.ID); err == nil {
			p.carry(p.core.Await(p.env.clock(), t, by))
		}
	}
	count(1)
	defer count(-1)
	return p.await(ctx, c.ID, c.Wait, func(t *pool.Ticket) bool { return t.Granted != c.Granted })
}

func (p ticketManager) renew(ctx context.Context, id string) (admission.Ticket, error) {
	err := p.on(id, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Sign(p.env.clock(), t), nil })
	if err != nil {
		return admission.Ticket{}, err
	}
	return p.await(ctx, id, 0, anyState)
}

// use lets one request have the ticket's slot, and no other ever.
func (p ticketManager) use(ctx context.Context, c ticketCall) (admission.Ticket, error) {
	err := p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Use(p.env.clock(), t, c.Call) })
	if err != nil {
		return admission.Ticket{}, err
	}
	return p.await(ctx, c.ID, 0, anyState)
}

// finish ends a ticket on its holder's word.
func (p ticketManager) finish(c ticketCall) error {
	return p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Finish(p.env.clock(), t, c.Call) })
}

// on lets an event of a ticket happen.
func (p ticketManager) on(id string, event func(*pool.Ticket) (*pool.Effects, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.find(id)
	if err != nil {
		return err
	}
	fx, err := event(t)
	if err == nil {
		p.carry(fx)
	}
	return err
}

// describe says how t stands. The caller holds the lock.
func (p ticketManager) describe(t *pool.Ticket) admission.Ticket {
	s := p.held[t]
	out := admission.Ticket{ID: t.ID, Pool: p.name, TTL: t.TTL, Left: t.Left(p.env.clock()), Arrived: s.since, Place: s.id(p.name)}
	if t.Granted {
		out.Granted, out.Fence, out.Grant = true, s.fence(p.name), s.grantInfo()
	}
	return out
}

// ticketCall is what is asked about a ticket.
type ticketCall struct {
	Op      ticketOp
	ID      string
	Granted bool          // test: the state in which the answer may wait
	Wait    time.Duration // test: how long
	Call    string        // use: its name, the same when it comes again; end: that of the use that ends
}

type ticketOp string

const (
	opTest  ticketOp = "test"
	opRenew ticketOp = "renew"
	opUse   ticketOp = "use"
	opEnd   ticketOp = "end"
)
