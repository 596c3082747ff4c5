// Package admintest has stand-ins for tests of what uses package admin.
package admintest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// Tickets is a fair semaphore with time limits, in memory: it does what all
// gateways together do. It implements admin.Tickets.
type Tickets struct {
	mu    sync.Mutex
	pools map[string]*pool
	all   map[string]*ticket
	limit int // of waiting tickets
	// unavailable is what everything fails with, if set.
	unavailable error
}

var _ admin.Tickets = (*Tickets)(nil)

type pool struct {
	k, granted int
	serial     int
	line       []*ticket
}

type ticket struct {
	admin.Ticket
	timer *time.Timer
	polls int
	ended admin.Reason
	next  chan struct{} // closed when the state changes
}

// NewTickets returns pools with the k given by name.
func NewTickets(k map[string]int) *Tickets {
	m := &Tickets{pools: make(map[string]*pool), all: make(map[string]*ticket), limit: 100}
	for name, n := range k {
		m.pools[name] = &pool{k: n}
	}
	return m
}

// Fail makes everything fail with err, until it is nil.
func (m *Tickets) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unavailable = err
}

// Count returns how many tickets of the pool hold a slot and wait.
func (m *Tickets) Count(name string) (granted, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools[name].granted, len(m.pools[name].line)
}

// Drop takes a ticket away from its holder.
func (m *Tickets) Drop(id string, why admin.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.all[id]; t != nil {
		m.end(t, why)
	}
}

// DropWaiting takes all waiting tickets of the pool away from their holders.
func (m *Tickets) DropWaiting(name string, why admin.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range slices.Clone(m.pools[name].line) {
		m.end(t, why)
	}
}

// Request implements admin.Tickets.
func (m *Tickets) Request(_ context.Context, q admin.TicketRequest) (admin.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[q.Pool]
	switch {
	case m.unavailable != nil:
		return admin.Ticket{}, m.unavailable
	case p == nil:
		return admin.Ticket{}, fmt.Errorf("%w: no pool is named %q", admin.ErrUnknown, q.Pool)
	case len(p.line) >= m.limit:
		return admin.Ticket{}, fmt.Errorf("%w: %d tickets wait", admin.ErrTooMany, len(p.line))
	}
	t := &ticket{next: make(chan struct{})}
	t.Ticket = admin.Ticket{ID: strings.ToLower(rand.Text()) + "-1", Pool: q.Pool, State: admin.TicketWaiting, TTL: q.TTL}
	t.timer = time.AfterFunc(t.TTL, func() { m.Drop(t.ID, admin.ReasonExpired) })
	t.Expires = time.Now().Add(t.TTL)
	m.all[t.ID] = t
	p.line = append(p.line, t)
	p.serve()
	return t.Ticket, nil
}

// Test implements admin.Tickets.
func (m *Tickets) Test(ctx context.Context, id string, while admin.TicketState, wait time.Duration) (admin.Ticket, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return admin.Ticket{}, err
	}
	if t.State == admin.TicketWaiting {
		t.polls++
		t.timer.Stop()
		defer func() {
			if t.polls--; t.polls == 0 && t.ended == "" {
				t.sign()
			}
		}()
	}
	for t.State == while && ctx.Err() == nil && t.ended == "" {
		next := t.next
		m.mu.Unlock()
		over := false
		select {
		case <-next:
		case <-timeout.C:
			over = true
		case <-ctx.Done():
		}
		m.mu.Lock()
		if over {
			break
		}
	}
	if ctx.Err() != nil {
		return admin.Ticket{}, ctx.Err()
	}
	if _, err := m.find(id); err != nil {
		return admin.Ticket{}, err
	}
	return t.Ticket, nil
}

// Renew implements admin.Tickets.
func (m *Tickets) Renew(_ context.Context, id string) (admin.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return admin.Ticket{}, err
	}
	t.sign()
	return t.Ticket, nil
}

// End implements admin.Tickets.
func (m *Tickets) End(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return err
	}
	if t.State == admin.TicketGranted {
		m.end(t, admin.ReasonReleased)
	} else {
		m.end(t, admin.ReasonCancelled)
	}
	return nil
}

func (m *Tickets) find(id string) (*ticket, error) {
	t := m.all[id]
	switch {
	case m.unavailable != nil:
		return nil, m.unavailable
	case t == nil:
		return nil, admin.ErrUnknown
	case t.ended != "":
		return nil, &admin.GoneError{Reason: t.ended}
	}
	if i := slices.Index(m.pools[t.Pool].line, t); i >= 0 {
		t.Position, t.ETA = i+1, time.Duration(i+1)*time.Second
	}
	return t, nil
}

func (t *ticket) sign() {
	t.timer.Reset(t.TTL)
	t.Expires = time.Now().Add(t.TTL)
}

func (m *Tickets) end(t *ticket, why admin.Reason) {
	if t.ended != "" {
		return
	}
	p := m.pools[t.Pool]
	if t.State == admin.TicketGranted {
		p.granted--
	} else {
		p.line = slices.DeleteFunc(p.line, func(x *ticket) bool { return x == t })
	}
	t.ended = why
	t.timer.Stop()
	close(t.next)
	p.serve()
}

func (p *pool) serve() {
	for p.granted < p.k && len(p.line) > 0 {
		t := p.line[0]
		p.line = p.line[1:]
		p.granted++
		p.serial++
		t.State, t.Position, t.ETA = admin.TicketGranted, 0, 0
		t.Fence = fmt.Sprintf("%s/1/%d", t.Pool, p.serial)
		close(t.next)
		t.next = make(chan struct{})
	}
}
