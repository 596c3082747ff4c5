package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Bounds of what this gateway asks another one.
const (
	// mostPolls bounds the calls of one gateway that wait there for their answers: the others
	// shall find a place.
	mostPolls = 128
	// pollEvery is how often a ticket is asked about, for all who wait for it here.
	pollEvery = time.Second
)

// polls are the questions about tickets that other gateways have. However many clients ask
// about a ticket here, its gateway gets one question at a time.
type polls struct {
	mu      sync.Mutex
	of      map[pollKey]*poll
	waiting map[kmutex.Node]int // questions that wait at a gateway
}

// pollKey is what is asked: whether a ticket still is granted, or still is not.
type pollKey struct {
	id      string
	granted bool
}

// poll is what was asked and answered last about a ticket.
type poll struct {
	callers int           // the lock of polls guards it
	turn    chan struct{} // whoever fills it may use the rest
	sent    time.Time
	ticket  admission.Ticket
	err     error
}

// ask waits for a ticket of another gateway, as c says. Question asks that gateway, which may wait
// for so long before it answers.
func (ps *polls) ask(ctx context.Context, at kmutex.Node, c ticketCall, question func(wait time.Duration) (admission.Ticket, error)) (admission.Ticket, error) {
	key := pollKey{c.ID, c.Granted}
	p := ps.join(key)
	defer ps.leave(key, p)
	for end := time.Now().Add(c.Wait); ; {
		t, err := p.next(ctx, end, func() (admission.Ticket, error) {
			wait := ps.mayWait(at, min(pollEvery, time.Until(end)))
			if wait > 0 {
				defer ps.waited(at)
			}
			return question(wait)
		})
		if err != nil || t.Granted != c.Granted || !time.Now().Before(end) {
			return t, err
		}
	}
}

func (ps *polls) join(key pollKey) *poll {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[key]
	if p == nil {
		p = &poll{turn: make(chan struct{}, 1)}
		ps.of[key] = p
	}
	p.callers++
	return p
}

func (ps *polls) leave(key pollKey, p *poll) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.callers--; p.callers == 0 {
		delete(ps.of, key)
	}
}

// mayWait returns how long a question may wait at a gateway: not at all if others use up the
// places for that; the next one follows soon. If it may, waited ends that.
func (ps *polls) mayWait(at kmutex.Node, wait time.Duration) time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if wait <= 0 || ps.waiting[at] >= mostPolls {
		return 0
	}
	ps.waiting[at]++
	return wait
}

func (ps *polls) waited(at kmutex.Node) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.waiting[at]--; ps.waiting[at] == 0 {
		delete(ps.waiting, at)
	}
}

// next returns the answer to a question that was sent after the call, because what it promises counts
// from there. Until end it waits until the next question about the ticket is due.
func (p *poll) next(ctx context.Context, end time.Time, question func() (admission.Ticket, error)) (admission.Ticket, error) {
	came := time.Now()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return admission.Ticket{}, fmt.Errorf("%w: %w", admission.ErrElsewhere, context.Cause(ctx))
	}
	ownEnd := errors.Is(p.err, context.Canceled) || errors.Is(p.err, context.DeadlineExceeded) // that of the caller who asked
	if p.sent.After(came) && !ownEnd {
		return p.ticket, p.err
	}
	select {
	case <-time.After(min(time.Until(end), time.Until(p.sent.Add(pollEvery)))):
	case <-ctx.Done():
		return admission.Ticket{}, fmt.Errorf("%w: %w", admission.ErrElsewhere, context.Cause(ctx))
	}
	p.sent = time.Now()
	p.ticket, p.err = question()
	return p.ticket, p.err
}
