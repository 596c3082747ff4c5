package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/internal/pace"
)

// Redeemed is a ticket's slot in the hands of one request at this gateway,
// wherever the ticket is. It lives as long as the ticket is renewed in time.
// It is safe for concurrent use.
type Redeemed struct {
	pool   *poolDriver // of the incarnation that redeemed it
	guest  guest       // as the pool has it
	ticket admission.Ticket
	// renew asks the ticket's owner for one more time to live.
	renew func(context.Context) (admission.Ticket, error)
	// end ends the ticket, and giveBack has it wait again, on the word of the request that uses it.
	end, giveBack func(context.Context) error

	mu     sync.Mutex
	cancel context.CancelFunc // of the renewals; nil before start
	timer  *time.Timer        // loses the slot at until; nil before start
	until  time.Time          // counted from the sending of the last renewal
	lost   bool
	over   bool
	holder admission.Holder // nil: nobody is told of the loss, or it was told
}

var _ admission.Slot = (*Redeemed)(nil)

// RedeemTicket lets one request have the slot of a granted ticket of the pool. It
// fails with ErrTicketWaiting, ErrTicketUsed or ErrUnknownTicket, or as the other
// ticket methods do. Its Release ends the ticket. The holder is told when the slot is lost, also
// when the ticket could not be renewed in time; nil: nobody is.
func (g *Gateway) RedeemTicket(ctx context.Context, pool, id string, holder admission.Holder) (admission.Slot, error) {
	r, err := g.redeem(ctx, pool, id, holder, false)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// RedeemOwn is RedeemTicket for the program itself: see Own.
func (g *Gateway) RedeemOwn(ctx context.Context, pool, id string, holder admission.Holder) (*Redeemed, error) {
	return g.redeem(ctx, pool, id, holder, true)
}

func (g *Gateway) redeem(ctx context.Context, pool, id string, holder admission.Holder, own bool) (*Redeemed, error) {
	// Asked before it is used, so that a ticket of another pool stays good.
	t, err := g.tickets.do(ctx, ticketCall{Op: opTest, ID: id})
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
		return nil, g.refusal(pool, g.missing(pool))
	}
	call := rand.Text()
	r := &Redeemed{
		pool: p, guest: guest{since: g.now()}, holder: holder,
		renew: func(ctx context.Context) (admission.Ticket, error) { return g.RenewTicket(ctx, id) },
	}
	if own {
		r.guest.own = &LineEntry{ID: t.Place, Info: admission.RequestInfo{Note: t.Note}, Ticket: true, Arrived: t.Arrived}
	}
	as := func(op ticketOp) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := g.tickets.do(ctx, ticketCall{Op: op, ID: id, Call: call})
			return err
		}
	}
	r.end, r.giveBack = as(opEnd), as(opReturn)
	// Drain and BreakOff have to know of the request before it has the ticket.
	if err := r.enter(); err != nil {
		return nil, p.refused(err)
	}
	sent := g.now()
	if t, err = g.tickets.do(ctx, ticketCall{Op: opUse, ID: id, Call: call}); err != nil {
		r.leave()
		if !errors.Is(err, admission.ErrTicketUsed) {
			r.endTicket() // the slot may be this call's, though the answer is an error
		}
		return nil, g.refusal(pool, err)
	}
	r.start(sent, t)
	return r, nil
}

// endTicket ends the ticket in the background. Only the call that uses its slot can; if it
// fails, the ticket's time to live ends it.
func (r *Redeemed) endTicket() {
	r.pool.background(func() {
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(r.pool.ctx, patience)
		defer cancel()
		_ = r.end(ctx)
	})
}

// enter counts r among what is in flight here.
func (r *Redeemed) enter() error {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.draining.Load():
		return admission.Draining
	case !p.alive(), !p.entitled(p.self):
		return admission.Isolated
	}
	r.guest.lose = r.lose
	p.addGuest(&r.guest)
	return nil
}

// leave ends what enter began.
func (r *Redeemed) leave() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.guest.carries = false
	r.pool.removeGuest(&r.guest)
	r.pool.pace(false)
}

// carry says whether r carries the part of its ticket's token.
func (r *Redeemed) carry(does bool) {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.guest.carries = does
	r.pool.pace(false)
}

// usableUntil is when a slot that was renewed at sent may be used no longer: before its
// owner can think so.
func usableUntil(sent time.Time, t admission.Ticket) time.Time {
	return sent.Add(drift.Use(life(t)))
}

// life is how long a ticket lives after it is renewed: less than its time to live where
// the pool bounds the hold.
func life(t admission.Ticket) time.Duration { return min(t.TTL, t.Left) }

// start begins the life of a slot that was given, or renewed, at sent.
func (r *Redeemed) start(sent time.Time, t admission.Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticket = t
	if r.lost {
		return // meanwhile
	}
	r.until = usableUntil(sent, r.ticket)
	// The timer alone ends the slot in time, whatever the renewal under way does.
	r.timer = time.AfterFunc(r.until.Sub(r.pool.now()), r.expire)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(r.pool.ctx)
	r.pool.background(func() { r.keep(ctx, sent) })
	r.carry(true)
}

// keep renews the ticket until the slot is released or lost.
func (r *Redeemed) keep(ctx context.Context, renewed time.Time) {
	pause := r.ticket.TTL / 30
	next := renewed.Add(life(r.ticket) / 3)
	for {
		select {
		case <-time.After(next.Sub(r.pool.now())):
		case <-ctx.Done():
			return
		}
		sent := r.pool.now()
		t, err := r.try(ctx)
		var ended *admission.EndedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &ended), errors.Is(err, admission.ErrUnknownTicket):
			r.lose()
			return
		case err != nil:
			next = r.pool.now().Add(pause)
		default:
			if !r.extend(sent, t) {
				return
			}
			next = sent.Add(max(life(t)/3, pause))
		}
	}
}

// try renews once. It leaves time for another try, because the gateway that has the ticket
// may be silent, and another one may have it soon.
func (r *Redeemed) try(ctx context.Context) (admission.Ticket, error) {
	const longest = 5 * time.Second
	r.mu.Lock()
	left := r.until.Sub(r.pool.now())
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
	r.timer.Reset(r.until.Sub(r.pool.now()))
	return true
}

// expire loses the slot if it has not been renewed meanwhile.
func (r *Redeemed) expire() {
	r.mu.Lock()
	left := r.until.Sub(r.pool.now())
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
	holder := r.holder
	r.holder = nil
	if r.over {
		holder = nil
	}
	r.stop()
	r.carry(false)
	r.mu.Unlock()
	if holder != nil {
		holder.LoseSlot()
	}
}

// stop ends the renewals. The caller holds the lock.
func (r *Redeemed) stop() {
	if r.cancel != nil {
		r.timer.Stop()
		r.cancel()
	}
}

// Held is how long the slot has been held.
func (r *Redeemed) Held() time.Duration { return r.pool.now().Sub(r.guest.since) }

// Release ends the ticket.
func (r *Redeemed) Release() {
	if r.finish() {
		r.endTicket()
	}
}

// finish ends this request's use of the slot, and reports whether it had not ended before.
func (r *Redeemed) finish() bool {
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.stop()
	r.mu.Unlock()
	if first {
		r.leave()
	}
	return first
}

// Again gives the slot back whose upstream could not be reached. The ticket waits again, ahead of
// all that wait where it is, and so this request has no slot: Again returns its refusal. It does
// not wait with the ticket, whose holder may use it at another gateway.
func (r *Redeemed) Again(ctx context.Context, _ time.Duration) error {
	if !r.finish() {
		return admission.Isolated
	}
	if err := r.giveBack(ctx); err != nil {
		r.endTicket()
	}
	return r.pool.refused(admission.UpstreamDown)
}

// Fence of the slot.
func (r *Redeemed) Fence() string { return r.ticket.Fence }

// Upstream that the slot is for: see [admission.UpstreamOf].
func (r *Redeemed) Upstream() string { return r.ticket.Upstream }

// GrantInfo of the slot; the request itself has not waited.
func (r *Redeemed) GrantInfo() admission.GrantInfo { return r.ticket.Grant }

// Valid reports whether the slot may still be used.
func (r *Redeemed) Valid() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost && !r.over && r.pool.now().Before(r.until) && r.pool.entitled(r.pool.self)
}

// Pacers are those of [Slot].
func (r *Redeemed) Pacers() (down, up *pace.Pacer) { return r.pool.pacers() }
