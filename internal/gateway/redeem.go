package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/kmutex"
)

// Redeemed is a ticket's slot in the hands of one request at this gateway,
// wherever the ticket is. It lives as long as the ticket is renewed in time.
// It is safe for concurrent use.
type Redeemed struct {
	env    *env
	self   kmutex.Node // incarnation that redeemed it
	ticket admission.Ticket
	// renew asks the ticket's owner for one more time to live.
	renew  func(context.Context) (admission.Ticket, error)
	end    func(ctx context.Context, id string) error
	cancel context.CancelFunc
	timer  *time.Timer // loses the slot at until

	mu    sync.Mutex
	until time.Time // counted from the sending of the last renewal
	lost  bool
	over  bool
	abort func()
}

// RedeemTicket lets one request have the slot of a granted ticket of the pool. It
// fails with ErrTicketWaiting, ErrTicketUsed or ErrUnknownTicket, or as the other
// ticket methods do. Its Release ends the ticket.
func (g *Gateway) RedeemTicket(ctx context.Context, pool, id string) (*Redeemed, error) {
	self := g.views.Standing().Node
	// Asked before it is used, so that a ticket of another pool stays good.
	t, err := g.onTicket(ctx, ticketCall{Op: opTest, ID: id})
	switch {
	case err != nil:
		return nil, g.refusal(pool, err, 0)
	case t.Pool != pool:
		return nil, admission.ErrUnknownTicket
	case !t.Granted:
		return nil, admission.ErrTicketWaiting
	}
	sent := g.now()
	if t, err = g.onTicket(ctx, ticketCall{Op: opUse, ID: id, Call: rand.Text()}); err != nil {
		return nil, g.refusal(pool, err, 0)
	}
	r := &Redeemed{env: &g.env, end: g.EndTicket, self: self, ticket: t}
	r.renew = func(ctx context.Context) (admission.Ticket, error) { return g.RenewTicket(ctx, t.ID) }
	r.start(sent)
	return r, nil
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
func (r *Redeemed) start(sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = usableUntil(sent, r.ticket)
	// The timer alone ends the slot in time, whatever the renewal under way does.
	r.timer = time.AfterFunc(r.until.Sub(r.env.now()), r.expire)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(r.env.ctx)
	r.env.background(func() { r.keep(ctx, sent) })
}

// keep renews the ticket until the slot is released or lost.
func (r *Redeemed) keep(ctx context.Context, renewed time.Time) {
	pause := r.ticket.TTL / 30
	next := renewed.Add(life(r.ticket) / 3)
	for {
		select {
		case <-time.After(next.Sub(r.env.now())):
		case <-ctx.Done():
			return
		}
		sent := r.env.now()
		t, err := r.try(ctx)
		var ended *admission.EndedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &ended), errors.Is(err, admission.ErrUnknownTicket):
			r.lose()
			return
		case err != nil:
			next = r.env.now().Add(pause)
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
	left := r.until.Sub(r.env.now())
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
	r.timer.Reset(r.until.Sub(r.env.now()))
	return true
}

// expire loses the slot if it has not been renewed meanwhile.
func (r *Redeemed) expire() {
	r.mu.Lock()
	left := r.until.Sub(r.env.now())
	if left > 0 {
		r.timer.Reset(left)
	}
	r.mu.Unlock()
	if left <= 0 {
		r.lose()
	}
}

func (r *Redeemed) lose() {
	r.cancel()
	r.mu.Lock()
	r.lost = true
	abort := r.abort
	if r.over {
		abort = nil
	}
	r.mu.Unlock()
	if abort != nil {
		abort()
	}
}

// Release ends the ticket.
func (r *Redeemed) Release() {
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.mu.Unlock()
	if !first {
		return
	}
	r.timer.Stop()
	r.cancel()
	r.env.background(func() { // nobody waits for it; if it fails, the ticket expires
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(r.env.ctx, patience)
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
	return !r.lost && r.env.now().Before(r.until) && r.env.entitled(r.self)
}

// OnLost has abort called when the slot may be used no longer; at once if that
// is so already. After Release it is not called any more.
func (r *Redeemed) OnLost(abort func()) {
	r.mu.Lock()
	r.abort = abort
	lost := r.lost
	r.mu.Unlock()
	if lost {
		abort()
	}
}
