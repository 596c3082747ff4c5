package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
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
	ts := p.tickets()
	switch limit := p.limits.ClientTickets; {
	case !p.takes(ttl):
		return nil, admission.Isolated
	case limit > 0 && req.Counted && ts.Of(req.Client) >= limit:
		return nil, &admission.Refusal{Reason: admission.ClientLimit, Limit: limit}
	case ts.Full():
		return nil, admission.QueueFull
	}
	counted := ""
	if req.Counted {
		counted = req.Client
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	t := &pool.Ticket{
		ID: replication.NewID(secret, p.self), Client: counted, TTL: ttl, HoldMax: req.HoldMax, Note: note,
		Stamp: p.now().UnixNano(),
	}
	s := new(claim)
	if err := p.enqueue(s, &req, t); err != nil {
		return nil, err
	}
	p.placeNow(s)
	t.Stamp = s.since.UnixNano()
	p.held[t] = s
	p.carry(p.core.Keep(p.clock(), t))
	return t, nil
}

// ticketTTLs are the longest times to live that the gateways agree on, one after the other, so
// that a pool's first tickets cost a few entries of the log at most.
var ticketTTLs = [...]time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, admission.MaxTTL}

// enable makes the agreed view say that the pool has tickets, if it is the
// first; from then on the gateways take over what lost ones leave. It also says how long they
// live, if it is the first with such a time to live: so long are tokens withheld for tickets that
// nobody knows.
func (p ticketManager) enable(ctx context.Context, ttl time.Duration) error {
	for {
		changed := p.views.Changed()
		p.mu.Lock()
		alive, ready, followed := p.alive(), p.takes(ttl), p.moved.wait()
		p.mu.Unlock()
		switch {
		case !alive:
			return admission.Isolated
		case ready:
			return nil
		}
		at, _ := slices.BinarySearch(ticketTTLs[:], ttl)
		leased, cancel := p.during(ctx, func() bool { return p.entitled(p.self) })
		err := p.views.UseTickets(leased, p.name, ticketTTLs[at])
		cancel()
		if err != nil {
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

// takes reports whether a ticket of such a time to live may be taken now. The caller holds
// the lock.
func (p ticketManager) takes(ttl time.Duration) bool {
	return p.tickets() != nil && ttl <= cmp.Or(p.core.View().MaxTTL, admission.MaxTTL)
}

// awaitSynced waits until the successors and the disk have all that there is now.
func (p ticketManager) awaitSynced(ctx context.Context) error {
	p.mu.Lock()
	ts, version := p.tickets(), uint64(0)
	if ts != nil {
		version = ts.Table().Version()
	}
	p.mu.Unlock()
	for {
		p.mu.Lock()
		synced, moved := ts == nil || ts != p.tickets() || ts.SyncedTo(version), p.moved.wait()
		p.mu.Unlock()
		if synced {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// find returns a ticket. The caller holds the lock.
func (p ticketManager) find(id string) (*pool.Ticket, error) {
	ts := p.tickets()
	if ts == nil || !p.entitled(p.self) {
		return nil, admission.ErrElsewhere
	}
	if t := ts.Get(id); t != nil {
		return t, nil
	}
	switch how, known, synced := ts.Ended(id); {
	case known && synced:
		return nil, &admission.EndedError{How: how}
	case known:
		return nil, admission.ErrElsewhere
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
		if (over || ready(t)) && p.core.Tickets().Synced(t) {
			out, stamp := p.describe(t), t.Stamp
			p.mu.Unlock()
			if !out.Granted {
				out.Position, out.ETA = p.positions.of(ctx, p.poolDriver, stamp)
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

func (p ticketManager) test(ctx context.Context, c ticketCall) (admission.Ticket, error) {
	count := func(by int) { // await says what is wrong
		_ = p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Await(p.clock(), t, by), nil })
	}
	count(1)
	defer count(-1)
	return p.await(ctx, c.ID, c.Wait, func(t *pool.Ticket) bool { return t.Granted != c.Granted })
}

// renew notes a sign of the ticket's holder.
func (p ticketManager) renew(c ticketCall) error {
	return p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Sign(p.clock(), t), nil })
}

// use lets one request have the ticket's slot, and no other ever.
func (p ticketManager) use(c ticketCall) error {
	return p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Use(p.clock(), t, c.Call) })
}

// giveBack has a ticket wait again, whose slot's upstream a request could not reach.
func (p ticketManager) giveBack(c ticketCall) error {
	upstream := ""
	err := p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) {
		fx, err := p.core.Return(p.clock(), t, c.Call)
		if s := p.held[t]; err == nil {
			upstream = p.spec.Upstream(s.grant.Token)
			p.again(s)
		}
		return fx, err
	})
	if err == nil && p.cfg.Suspect != nil {
		p.cfg.Suspect(p.name, upstream)
	}
	return err
}

// finish ends a ticket, as its holder asks.
func (p ticketManager) finish(c ticketCall) error {
	return p.on(c.ID, func(t *pool.Ticket) (*pool.Effects, error) { return p.core.Finish(p.clock(), t, c.Call) })
}

// end is finish, and waits until the successors know, if that does not take long: else a ticket
// lives on there for its time to live if this gateway is lost now. A request that ends with its ticket
// does not wait.
func (p ticketManager) end(ctx context.Context, c ticketCall) error {
	const patience = time.Second
	if err := p.finish(c); err != nil || c.Call != "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = p.awaitSynced(ctx) // the ticket has ended here in any case
	return nil
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
	out := admission.Ticket{ID: t.ID, Pool: p.name, TTL: t.TTL, Left: t.Left(p.clock()), Arrived: s.since, Place: s.id(p.name), Note: t.Note}
	if t.Granted {
		out.Granted, out.Fence, out.Grant = true, s.fence(p.name), s.given
		out.Upstream = p.spec.Upstream(s.grant.Token)
	}
	return out
}

// ticketCall is what is asked about a ticket.
type ticketCall struct {
	Op      ticketOp
	ID      string
	Granted bool          // test: the state in which the answer may wait
	Wait    time.Duration // test: how long
	Call    string        // use: its name, the same when it comes again; return, end: that of the use that ends
}

type ticketOp string

const (
	opTest   ticketOp = "test"
	opRenew  ticketOp = "renew"
	opUse    ticketOp = "use"
	opReturn ticketOp = "return"
	opEnd    ticketOp = "end"
)
