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
	"github.com/kgate/kgate/internal/admission"
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
	admission.Ticket
	expires time.Time
	timer   *time.Timer
	polls   int
	ended   admission.Ending
	next    chan struct{} // closed when the state changes
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
func (m *Tickets) Drop(id string, why admission.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.all[id]; t != nil {
		m.end(t, why)
	}
}

// DropWaiting takes all waiting tickets of the pool away from their holders.
func (m *Tickets) DropWaiting(name string, why admission.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range slices.Clone(m.pools[name].line) {
		m.end(t, why)
	}
}

// RequestTicket implements admin.Tickets.
func (m *Tickets) RequestTicket(_ context.Context, req admission.Request, ttl time.Duration, _ string) (admission.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[req.Pool]
	switch {
	case m.unavailable != nil:
		return admission.Ticket{}, m.unavailable
	case p == nil:
		return admission.Ticket{}, fmt.Errorf("%w: %q", admission.ErrUnknownPool, req.Pool)
	case len(p.line) >= m.limit:
		return admission.Ticket{}, admission.QueueFull
	}
	t := &ticket{next: make(chan struct{})}
	t.Ticket = admission.Ticket{ID: strings.ToLower(rand.Text()) + "-1", Pool: req.Pool, TTL: ttl}
	t.timer = time.AfterFunc(t.TTL, func() { m.Drop(t.ID, admission.EndExpired) })
	t.expires = time.Now().Add(t.TTL)
	m.all[t.ID] = t
	p.line = append(p.line, t)
	p.serve()
	return t.now(), nil
}

// TestTicket implements admin.Tickets.
func (m *Tickets) TestTicket(ctx context.Context, id string, granted bool, wait time.Duration) (admission.Ticket, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return admission.Ticket{}, err
	}
	if !t.Granted {
		t.polls++
		t.timer.Stop()
		defer func() {
			if t.polls--; t.polls == 0 && t.ended == "" {
				t.sign()
			}
		}()
	}
	for t.Granted == granted && ctx.Err() == nil && t.ended == "" {
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
		return admission.Ticket{}, ctx.Err()
	}
	if _, err := m.find(id); err != nil {
		return admission.Ticket{}, err
	}
	return t.now(), nil
}

// RenewTicket implements admin.Tickets.
func (m *Tickets) RenewTicket(_ context.Context, id string) (admission.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return admission.Ticket{}, err
	}
	t.sign()
	return t.now(), nil
}

// EndTicket implements admin.Tickets.
func (m *Tickets) EndTicket(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(id)
	if err != nil {
		return err
	}
	if t.Granted {
		m.end(t, admission.EndReleased)
	} else {
		m.end(t, admission.EndCancelled)
	}
	return nil
}

func (m *Tickets) find(id string) (*ticket, error) {
	t := m.all[id]
	switch {
	case m.unavailable != nil:
		return nil, m.unavailable
	case t == nil:
		return nil, admission.ErrUnknownTicket
	case t.ended != "":
		return nil, &admission.EndedError{How: t.ended}
	}
	if i := slices.Index(m.pools[t.Pool].line, t); i >= 0 {
		t.Position, t.ETA = i+1, time.Duration(i+1)*time.Second
	}
	return t, nil
}

func (t *ticket) now() admission.Ticket {
	t.Left = time.Until(t.expires)
	return t.Ticket
}

func (t *ticket) sign() {
	t.timer.Reset(t.TTL)
	t.expires = time.Now().Add(t.TTL)
}

func (m *Tickets) end(t *ticket, why admission.Ending) {
	if t.ended != "" {
		return
	}
	p := m.pools[t.Pool]
	if t.Granted {
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
		t.Granted, t.Position, t.ETA = true, 0, 0
		t.Fence = fmt.Sprintf("%s/1/%d", t.Pool, p.serial)
		close(t.next)
		t.next = make(chan struct{})
	}
}
