package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// Slot is one ticket's place in a pool: first in line, then in the critical
// section. It is safe for concurrent use.
type Slot struct {
	pool   *poolDriver
	client *client // nil if the pool does not distinguish clients
	since  time.Time
	// position among those that waited here when it asked.
	position int
	// owner and number name it for good.
	owner  kmutex.Node
	number uint64
	info   *admission.RequestInfo // nil: nothing is known

	// The fields below are the pool's, under its lock.
	ticket kmutex.Request // 0: it waits for a place in line
	placed time.Time      // when its place was taken
	state  slotState
	grant  kmutex.Grant
	at     time.Time // when it was granted here
	epoch  uint64    // in which it was granted
	// founded says when the cluster was, for the fence.
	founded int64
	err     error         // why the wait ended without a grant
	ready   chan struct{} // closed when the wait is over; nil if it never began
	abort   func()        // see OnLost
	held    *pool.Ticket  // whose slot it is; nil: a request's
	span    string        // see admission.Request
	after   string        // see admission.GrantInfo
}

type slotState uint8

const (
	slotWaiting slotState = iota
	slotGranted
	slotEnded
	slotLost // with its incarnation, but its holder has not ended yet
)

// Acquire waits in the line of a pool until the request is admitted, no longer than
// req.Wait, and returns its slot, which the caller must Release. It fails with an
// [admission.Refusal], with ErrUnknownPool, or with the cause of ctx's end; then
// nothing is held and no place in line is kept.
func (g *Gateway) Acquire(ctx context.Context, req admission.Request) (*Slot, error) {
	if g.draining.Load() {
		return nil, g.refusal(req.Pool, admission.Draining, 0)
	}
	p := g.pool(req.Pool)
	if p == nil {
		return nil, g.refusal(req.Pool, g.missingPool(req.Pool), 0)
	}
	s, err := p.enter(req)
	if err != nil {
		return nil, p.refusal(err, 0)
	}
	if s.ready == nil {
		return s, nil
	}
	var timeout <-chan time.Time
	if req.Wait >= 0 {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.ready:
		// The lease may have run out between the grant and this goroutine's
		// turn: the process can have been stopped for any time.
		if err = s.err; err == nil && !s.Valid() {
			err = admission.Isolated
		}
	case <-timeout:
		err = admission.Timeout
	case <-ctx.Done():
		s.Release()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.Release()
		return nil, p.refusal(err, s.position)
	}
	return s, nil
}

// missingPool says why there is no pool of a name here.
func (g *Gateway) missingPool(name string) error {
	if _, agreed := g.views.View().Pool(name); agreed || !g.entitled(g.views.Standing().Node) {
		return admission.Isolated
	}
	var names []string
	for _, p := range g.Pools() {
		names = append(names, p.Name)
	}
	return fmt.Errorf("%w; there are: %s", admission.ErrUnknownPool, strings.Join(names, ", "))
}

// refusal returns the error of a request of the named pool, which may not exist.
func (g *Gateway) refusal(pool string, err error, position int) error {
	if p := g.pool(pool); p != nil {
		return p.refusal(err, position)
	}
	if reason := admission.Reason(""); errors.As(err, &reason) {
		return &admission.Refusal{Reason: reason, Position: position}
	}
	return err
}

// refusal returns the error of a request that waited at position, or did not. The
// caller does not hold the lock.
func (p *poolDriver) refusal(err error, position int) error {
	reason := admission.Reason("")
	if !errors.As(err, &reason) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.spec.K
	if reason == admission.ClientLimit {
		limit = cmp.Or(p.cfg.ClientLimit, p.cfg.ClientTickets)
	}
	return &admission.Refusal{Reason: reason, RetryAfter: p.rate.wait(p.g.now(), p.waiting), Limit: limit, Position: position}
}

// Release gives the slot back, or leaves the line. Calls after the first do
// nothing.
func (s *Slot) Release() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.release()
}

// release is Release under the pool's lock.
func (s *Slot) release() {
	switch s.state {
	case slotGranted:
		s.pool.end(s, kmutex.EventRelease)
	case slotWaiting:
		s.pool.end(s, kmutex.EventCancel)
	case slotLost:
		s.state = slotEnded
		s.pool.done()
	case slotEnded:
	}
}

// done notes that a request has ended. The caller holds the lock.
func (p *poolDriver) done() {
	p.requests--
	p.idle.signal(p.requests == 0)
}

// Valid reports whether the slot's holder may still act on it: the gateway's
// lease has not run out since. A holder that has been asleep asks before it does
// anything that others could see.
func (s *Slot) Valid() bool { return s.pool.g.entitled(s.pool.self) }

// OnLost has abort called, soon, when the slot may be used no longer because the
// gateway has lost its lease or breaks off its requests to stop; at once if that is so already. After
// Release it is not called any more. It must not block.
func (s *Slot) OnLost(abort func()) {
	s.pool.mu.Lock()
	lost := s.state == slotLost
	s.abort = abort
	s.pool.mu.Unlock()
	if lost {
		abort()
	}
}

// Fence names this use of a token for good, also over restarts of the cluster:
// pool, when the cluster was founded, epoch, serial. Of two uses of one token the
// later one has the greater numbers.
func (s *Slot) Fence() string {
	b := make([]byte, 0, len(s.pool.name)+40)
	b = append(append(b, s.pool.name...), '/')
	b = append(strconv.AppendInt(b, s.founded, 10), '/')
	b = append(strconv.AppendUint(b, s.epoch, 10), '/')
	return string(strconv.AppendUint(b, s.grant.Serial, 10))
}

// GrantInfo describes how the slot was granted.
func (s *Slot) GrantInfo() admission.GrantInfo {
	return admission.GrantInfo{Position: s.position, Token: int(s.grant.Token), Epoch: s.epoch, Serial: s.grant.Serial, After: s.after}
}

// enter puts a new request in line. A slot that came at once has no ready
// channel.
func (p *poolDriver) enter(req admission.Request) (*Slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.line(req, nil)
	if err == nil && s.state == slotWaiting {
		s.ready, s.position = make(chan struct{}), p.waiting
	}
	return s, err
}

// line puts a new slot in line: a request's, or a ticket's. The caller holds the
// lock.
func (p *poolDriver) line(req admission.Request, held *pool.Ticket) (*Slot, error) {
	switch {
	case p.g.draining.Load():
		return nil, admission.Draining
	case !p.alive(), !p.g.entitled(p.self):
		return nil, admission.Isolated
	case p.atLimit(req.Client):
		return nil, admission.ClientLimit
	case p.waiting >= p.cfg.QueueLimit:
		return nil, admission.QueueFull
	}
	s := p.newSlot(p.g.now(), held)
	s.info, s.span = req.Info, req.Span
	p.waiting++
	if held == nil {
		p.requests++
	}
	if p.join(s, req.Client) {
		p.step(p.place(s, s.since))
	}
	if s.state == slotWaiting && p.waiting == 1 {
		p.rate.begins(s.since)
	}
	return s, nil
}

func (p *poolDriver) newSlot(since time.Time, held *pool.Ticket) *Slot {
	p.numbers++
	return &Slot{pool: p, founded: p.view.Founded, owner: p.self, number: p.numbers, since: since, held: held}
}

// end takes s out of the pool, by releasing or cancelling its ticket. The caller
// holds the pool's lock.
func (p *poolDriver) end(s *Slot, how kmutex.EventKind) {
	ends := true
	if s.state == slotWaiting {
		p.waiting--
		ends = p.part(s)
		s.wake()
	} else {
		p.use(-1)
		p.gave(s)
		p.leaveTrail(s)
	}
	if s.held == nil {
		p.done()
	}
	s.state = slotEnded
	if ends {
		delete(p.slots, s.ticket)
		p.step(kmutex.Event{Kind: how, Request: s.ticket})
	}
}

// grant lets a waiting slot in. The caller holds the pool's lock.
func (p *poolDriver) grant(grant kmutex.Grant) {
	s := p.slots[grant.Request]
	if s == nil {
		return // refused when it was handed over, and about to be cancelled
	}
	s.state, s.grant, s.epoch, s.at = slotGranted, grant, p.spec.Epoch, p.g.now()
	p.waiting--
	p.use(1)
	p.came(s)
	p.rate.admitted(s.at, p.waiting > 0)
	p.overtaken(s)
	s.after = p.trail.take(grant.Token)
	s.wake()
	if s.held != nil {
		p.granted = append(p.granted, s)
	}
}

// use notes that so many slots more are in use. The caller holds the pool's lock.
func (p *poolDriver) use(more int) {
	p.inFlight += more
	p.watch.Slots(p.inFlight)
}

// wake ends the wait. The caller holds the pool's lock.
func (s *Slot) wake() {
	if s.ready != nil {
		close(s.ready)
	}
}
