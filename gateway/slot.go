package gateway

import (
	"context"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Slot is one ticket's place in a pool: first in line, then in the critical
// section. It is safe for concurrent use.
type Slot struct {
	pool   *pool
	ticket kmutex.Ticket
	since  time.Time

	// The fields below are the pool's, under its lock.
	state slotState
	err   error         // why the wait ended without a grant
	ready chan struct{} // closed when the wait is over; nil if it never began
}

type slotState uint8

const (
	slotWaiting slotState = iota
	slotGranted
	slotEnded
)

// NoTimeout lets Acquire wait for ever.
const NoTimeout time.Duration = -1

// Acquire waits in the line of the named pool until this request is admitted,
// no longer than wait, and returns its slot, which the caller must Release. It
// fails with ErrUnknownPool, ErrIsolated, ErrQueueFull, ErrTimeout or
// ErrDraining, or with the cause of ctx's end; then nothing is held and no place
// in line is kept.
func (g *Gateway) Acquire(ctx context.Context, name string, wait time.Duration) (*Slot, error) {
	p := g.pool(name)
	if p == nil {
		if _, in := g.cfg.Views.Self(); !in {
			return nil, ErrIsolated
		}
		return nil, ErrUnknownPool
	}
	s, err := p.enter()
	if err != nil || s.ready == nil {
		return s, err
	}
	var timeout <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.ready:
		err = s.err
	case <-timeout:
		err = ErrTimeout
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// Release gives the slot back, or leaves the line. Calls after the first do
// nothing.
func (s *Slot) Release() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s.state {
	case slotGranted:
		p.end(s, kmutex.EventRelease)
	case slotWaiting:
		p.end(s, kmutex.EventCancel)
	case slotEnded:
	}
}

// enter puts a new ticket in line. A slot that came at once has no ready channel.
func (p *pool) enter() (*Slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.g.draining.Load():
		return nil, ErrDraining
	case p.machine == nil, p.g.outside.Load():
		return nil, ErrIsolated
	case p.waiting >= p.limit:
		return nil, ErrQueueFull
	}
	p.last++
	s := &Slot{pool: p, ticket: p.last, since: p.g.now()}
	p.slots[s.ticket] = s
	p.waiting++
	p.step(kmutex.Event{Kind: kmutex.EventAcquire, Ticket: s.ticket})
	if s.state == slotWaiting {
		s.ready = make(chan struct{})
	}
	return s, nil
}

// end takes s out of the pool, by releasing or cancelling its ticket. The caller
// holds the pool's lock.
func (p *pool) end(s *Slot, how kmutex.EventKind) {
	if s.state == slotWaiting {
		p.waiting--
		if s.ready != nil {
			close(s.ready)
		}
	} else {
		p.inFlight--
		p.idle.signal(p.inFlight == 0)
	}
	s.state = slotEnded
	delete(p.slots, s.ticket)
	p.step(kmutex.Event{Kind: how, Ticket: s.ticket})
}

// grant lets a waiting slot in. The caller holds the pool's lock.
func (p *pool) grant(t kmutex.Ticket) {
	s := p.slots[t]
	s.state = slotGranted
	p.waiting--
	p.inFlight++
	p.rate.admitted(p.g.now(), p.waiting > 0)
	if s.ready != nil {
		close(s.ready)
	}
}
