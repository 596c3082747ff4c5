package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
)

// Redeemed is a ticket's slot in the hands of one request at this gateway,
// wherever the ticket is. It lives as long as the ticket is renewed in time.
// It is safe for concurrent use.
type Redeemed struct {
	pool   *poolDriver // of the incarnation that redeemed it
	ticket admission.Ticket
	// renew asks the ticket's owner for one more time to live.
	renew func(context.Context) (admission.Ticket, error)
	end   func(ctx context.Context, id string) error

	mu     sync.Mutex
	cancel context.CancelFunc // of the renewals; nil before start
	timer  *time.Timer        // loses the slot at until; nil before start
	until  time.Time          // counted from the sending of the last renewal
	lost   bool
	over   bool
	abort  func() // nil once it is called
}

// RedeemTicket lets one request have the slot of a granted ticket of the pool. It
// fails with ErrTicketWaiting, ErrTicketUsed or ErrUnknownTicket, or as the other
// ticket methods do. Its Release ends the ticket.
func (g *Gateway) RedeemTicket(ctx context.Context, pool, id string) (*Redeemed, error) {
	// Asked before it is used, so that a ticket of another pool stays good.
	t, err := g.onTicket(ctx, ticketCall{Op: opTest, ID: id})
	switch {
	case err != nil:
		return nil, g.refusal(pool, err)
	case t.Pool != pool:
		return nil, admission.ErrUnknownTicket
	case !t.Granted:
		return nil, admission.ErrTicketWaiting
	}
	p := g.pool(pool)
	if p == nil {
		return nil, g.refusal(pool, g.missingPool(pool))
	}
	call := rand.Text()
	end := func(ctx context.Context, id string) error {
		_, err := g.onTicket(ctx, ticketCall{Op: opEnd, ID: id, Call: call})
		return err
	}
	r := &Redeemed{pool: p, end: end}
	r.renew = func(ctx context.Context) (admission.Ticket, error) { return g.RenewTicket(ctx, id) }
	// Whoever drains this gateway, or ends what it has in flight, has to know of the
	// request before the ticket is its own.
	if err := p.redeem(r); err != nil {
		return nil, p.refusal(err, 0)
	}
	sent := g.now()
	if t, err = g.onTicket(ctx, ticketCall{Op: opUse, ID: id, Call: call}); err != nil {
		p.unredeem(r)
		if !errors.Is(err, admission.ErrTicketUsed) {
			p.env.background(func() { g.unuse(id, end) })
		}
		return nil, g.refusal(pool, err)
	}
	r.start(sent, t)
	return r, nil
}

// unuse ends a ticket that may be used though the answer is an error: only that use can end
// it, and its request does not begin.
func (g *Gateway) unuse(id string, end func(context.Context, string) error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	_ = end(ctx, id) // else its time to live ends it
}

// redeem counts r among what is in flight here.
func (p *poolDriver) redeem(r *Redeemed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.env.draining.Load():
		return admission.Draining
	case !p.alive(), !p.env.entitled(p.self):
		return admission.Isolated
	}
	p.redeemed[r] = false
	p.requests++
	return nil
}

func (p *poolDriver) unredeem(r *Redeemed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.redeemed, r)
	p.pace(false)
	p.done()
}

// usableUntil is when a slot that was renewed at sent may be used no longer: before its
// owner can think so.
func usableUntil(sent time.Time, t admission.Ticket) time.Time {
	return sent.Add(drift.Use(life(t)))
}

// life is how long a ticket lives after a sign of its holder. Less than its time to
// live is left where the pool bounds the hold.
func life(t admission.Ticket) time.Duration { return min(t.TTL, t.Left) }

// start begins the life of a slot that was given, or renewed, at sent.
func (r *Redeemed) start(sent time.Time, t admission.Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticket = t
	if r.lost {
		return // meanwhile
	}
	env := r.pool.env
	r.until = usableUntil(sent, r.ticket)
	// The timer alone ends the slot in time, whatever the renewal under way does.
	r.timer = time.AfterFunc(r.until.Sub(env.now()), r.expire)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(env.ctx)
	env.background(func() { r.keep(ctx, sent) })
	r.pool.carriesShare(r, true)
}

// keep renews the ticket until the slot is released or lost.
func (r *Redeemed) keep(ctx context.Context, renewed time.Time) {
	pause := r.ticket.TTL / 30
	next := renewed.Add(life(r.ticket) / 3)
	for {
		select {
		case <-time.After(next.Sub(r.pool.env.now())):
		case <-ctx.Done():
			return
		}
		sent := r.pool.env.now()
		t, err := r.try(ctx)
		var ended *admission.EndedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &ended), errors.Is(err, admission.ErrUnknownTicket):
			r.lose()
			return
		case err != nil:
			next = r.pool.env.now().Add(pause)
		default:
			if !r.extend(sent, t) {
				return
			}
			next = sent.Add(max(life(t)/3, pause))
		}
	}
}

// try renews once. It leaves time for another try, because who has the ticket may
// be silent, and another gateway have it soon.
func (r *Redeemed) try(ctx context.Context) (admission.Ticket, error) {
	const longest = 5 * time.Second
	r.mu.Lock()
	left := r.until.Sub(r.pool.env.now())
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(2*left/3, longest))
	defer cancel()
	return r.renew(ctx)
}

// extend notes a renewal that was sent at sent, and answered with t, and reports
// whether it was in time.
func (r *Redeemed) extend(sent time.Time, t admission.Ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.over {
		return false
	}
	r.until = usableUntil(sent, t)
	r.timer.Reset(r.until.Sub(r.pool.env.now()))
	return true
}

// expire loses the slot if it has not been renewed meanwhile.
func (r *Redeemed) expire() {
	r.mu.Lock()
	left := r.until.Sub(r.pool.env.now())
	if left > 0 {
		r.timer.Reset(left)
	}
	r.mu.Unlock()
	if left <= 0 {
		r.lose()
	}
}

// lose tells the request that the slot is lost.
func (r *Redeemed) lose() {
	r.mu.Lock()
	r.lost = true
	abort := r.abort
	r.abort = nil
	if r.over {
		abort = nil
	}
	r.stop()
	r.pool.carriesShare(r, false)
	r.mu.Unlock()
	if abort != nil {
		abort()
	}
}

// stop ends the renewals. The caller holds the lock.
func (r *Redeemed) stop() {
	if r.cancel != nil {
		r.timer.Stop()
		r.cancel()
	}
}

// Release ends the ticket.
func (r *Redeemed) Release() {
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.stop()
	r.mu.Unlock()
	if !first {
		return
	}
	r.pool.unredeem(r)
	r.pool.env.background(func() { // nobody waits for it; if it fails, the ticket expires
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(r.pool.env.ctx, patience)
		defer cancel()
		_ = r.end(ctx, r.ticket.ID)
	})
}

// Fence of the slot.
func (r *Redeemed) Fence() string { return r.ticket.Fence }

// GrantInfo of the slot; the request itself has not waited.
func (r *Redeemed) GrantInfo() admission.GrantInfo { return r.ticket.Grant }

// Valid reports whether the slot may still be used.
func (r *Redeemed) Valid() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost && !r.over && r.pool.env.now().Before(r.until) && r.pool.env.entitled(r.pool.self)
}

// OnLost has abort called, once, when the slot may be used no longer: the gateway has
// lost its lease or breaks off its requests, or the ticket could not be renewed in time.
// It is called at once if that is so already, but not after Release.
func (r *Redeemed) OnLost(abort func()) {
	r.mu.Lock()
	lost := r.lost && !r.over
	if r.abort = abort; lost {
		r.abort = nil
	}
	r.mu.Unlock()
	if lost {
		abort()
	}
}
