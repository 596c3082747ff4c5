package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Redeemed is a ticket's slot in the hands of one request at this gateway,
// wherever the ticket is. It lives as long as the ticket is renewed in time.
// It is safe for concurrent use.
type Redeemed struct {
	g      *Gateway
	self   kmutex.Node // incarnation that redeemed it
	ticket Ticket
	cancel context.CancelFunc

	mu    sync.Mutex
	until time.Time // counted from the sending of the last renewal
	lost  bool
	over  bool
	abort func()
}

// RedeemTicket lets one request have the slot of a granted ticket of the pool. It
// fails with ErrTicketWaiting, ErrTicketUsed, ErrUnknownTicket, or as the other
// ticket methods do. Its Release ends the ticket.
func (g *Gateway) RedeemTicket(ctx context.Context, pool, id string) (*Redeemed, error) {
	self := g.cfg.Views.Standing().Node
	// Asked before it is used, so that a ticket of another pool stays good.
	t, err := g.onTicket(ctx, ticketCall{Op: opTest, ID: id})
	switch {
	case err != nil:
		return nil, err
	case t.Pool != pool:
		return nil, ErrUnknownTicket
	case !t.Granted:
		return nil, ErrTicketWaiting
	}
	sent := g.now()
	if t, err = g.onTicket(ctx, ticketCall{Op: opUse, ID: id}); err != nil {
		return nil, err
	}
	r := &Redeemed{g: g, self: self, ticket: t, until: usableUntil(sent, t)}
	var life context.Context
	life, r.cancel = context.WithCancel(g.ctx)
	g.wg.Go(func() { r.renew(life) })
	return r, nil
}

// usableUntil is when a slot that was renewed at sent may be used no longer: before its
// owner can think so.
func usableUntil(sent time.Time, t Ticket) time.Time {
	const margin = 10          // of the time to live, for what has to be broken off
	life := min(t.TTL, t.Left) // less is left where the pool bounds the hold
	return sent.Add(life - life/margin)
}

// renew keeps the ticket until the slot is released or lost.
func (r *Redeemed) renew(ctx context.Context) {
	for {
		r.mu.Lock()
		left := r.until.Sub(r.g.now())
		r.mu.Unlock()
		select {
		case <-time.After(min(r.ticket.TTL/3, left)):
		case <-ctx.Done():
			return
		}
		sent := r.g.now()
		r.mu.Lock()
		left = r.until.Sub(sent)
		r.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, max(left, 0))
		t, err := r.g.RenewTicket(call, r.ticket.ID)
		cancel()
		var ended *EndedError
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		if err == nil {
			r.until = usableUntil(sent, t)
		}
		gone := errors.As(err, &ended) || errors.Is(err, ErrUnknownTicket) || !r.g.now().Before(r.until)
		r.mu.Unlock()
		if gone {
			r.lose()
			return
		}
	}
}

func (r *Redeemed) lose() {
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
	r.cancel()
	r.g.wg.Go(func() { // nobody waits for it; if it fails, the ticket expires
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(r.g.ctx, patience)
		defer cancel()
		_ = r.g.EndTicket(ctx, r.ticket.ID)
	})
}

// Fence of the slot.
func (r *Redeemed) Fence() string { return r.ticket.Fence }

// Entry of the slot; the request itself has not waited.
func (r *Redeemed) Entry() Entry { return r.ticket.Entry }

// Valid reports whether the slot may still be used.
func (r *Redeemed) Valid() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost && r.g.now().Before(r.until) && r.g.entitled(r.self)
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
