package gateway

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// Slot is one ticket's place in a pool: first in line, then in the critical
// section. It is safe for concurrent use.
type Slot struct {
	pool   *poolDriver
	client *client // nil: nobody is told from it
	since  time.Time
	// position among those that waited here when it asked.
	position int
	// owner and number name it for good.
	owner  kmutex.Node
	number uint64
	note   *Note // nil: nothing is known

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
	span    string        // see Ask
	after   string        // see Entry
}

type slotState uint8

const (
	slotWaiting slotState = iota
	slotGranted
	slotEnded
	slotLost // with its incarnation, but its holder has not ended yet
)

// NoTimeout lets Acquire wait for ever.
const NoTimeout time.Duration = -1

// Ask is what a request wants of the line.
type Ask struct {
	Pool string
	// Wait is the longest wait.
	Wait time.Duration
	// Client is who asks; empty: nobody in particular.
	Client string
	// Span of a request that is sampled, the ids of its trace and of itself in 24
	// bytes: who has its token next is told. Empty: it is not sampled.
	Span string
	// HoldMax is the longest that a ticket keeps its slot, however often it is
	// renewed; 0: as long as it is. It says nothing of requests.
	HoldMax time.Duration
	// Request describes it to people who look at the line; nil: nothing is known.
	// It is kept while the request waits and holds its slot.
	Request *Note
}

// Note describes a request to people.
type Note struct {
	// Method and Path of the request, the path without its query.
	Method, Path string
	// Remote is the client's address.
	Remote netip.Addr
	// Trace is the id of the trace that the request belongs to; empty: none.
	Trace string
}

// Entry is how a slot was come by.
type Entry struct {
	// Position among those that waited here when it asked, 1 for the next; 0 if
	// it did not wait.
	Position int
	// Token that it holds.
	Token int
	// Epoch of the pool, and Serial of the grant in it.
	Epoch, Serial uint64
	// After is the span of the request that had the token before, at whatever
	// gateway; empty if it was not sampled, or is not known.
	After string
}

// WaitError is the error of a request that has waited in line, and was not admitted.
type WaitError struct {
	Err error // one of those of Acquire
	// Position among those that waited here when it asked, 1 for the next.
	Position int
}

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// Acquire waits in the line of a pool until this request is admitted, no longer
// than it wants to, and returns its slot, which the caller must Release. It
// fails with ErrUnknownPool, ErrIsolated, ErrQueueFull, ErrClientLimit, ErrTimeout
// or ErrDraining, in a WaitError if it has waited, or with the cause of ctx's end; then nothing is held and no place
// in line is kept.
func (g *Gateway) Acquire(ctx context.Context, ask Ask) (*Slot, error) {
	if g.draining.Load() {
		return nil, ErrDraining
	}
	p := g.pool(ask.Pool)
	if p == nil {
		if _, agreed := g.cfg.Views.View().Pool(ask.Pool); agreed || !g.entitled(g.cfg.Views.Standing().Node) {
			return nil, ErrIsolated
		}
		return nil, ErrUnknownPool
	}
	s, err := p.enter(ask)
	if err != nil || s.ready == nil {
		return s, err
	}
	var timeout <-chan time.Time
	if ask.Wait >= 0 {
		timer := time.NewTimer(ask.Wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.ready:
		// The lease may have run out between the grant and this goroutine's
		// turn: the process can have been stopped for any time.
		if err = s.err; err == nil && !s.Valid() {
			err = ErrIsolated
		}
	case <-timeout:
		err = ErrTimeout
	case <-ctx.Done():
		s.Release()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.Release()
		return nil, &WaitError{Err: err, Position: s.position}
	}
	return s, nil
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

// Entry tells how the slot was come by.
func (s *Slot) Entry() Entry {
	return Entry{Position: s.position, Token: int(s.grant.Token), Epoch: s.epoch, Serial: s.grant.Serial, After: s.after}
}

// enter puts a new request in line. A slot that came at once has no ready
// channel.
func (p *poolDriver) enter(ask Ask) (*Slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.line(ask, nil)
	if err == nil && s.state == slotWaiting {
		s.ready, s.position = make(chan struct{}), p.waiting
	}
	return s, err
}

// line puts a new slot in line: a request's, or a ticket's. The caller holds the
// lock.
func (p *poolDriver) line(ask Ask, held *pool.Ticket) (*Slot, error) {
	switch {
	case p.g.draining.Load():
		return nil, ErrDraining
	case !p.alive(), !p.g.entitled(p.self):
		return nil, ErrIsolated
	case p.atLimit(ask.Client):
		return nil, ErrClientLimit
	case p.waiting >= p.cfg.QueueLimit:
		return nil, ErrQueueFull
	}
	s := p.newSlot(p.g.now(), held)
	s.note, s.span = ask.Request, ask.Span
	p.waiting++
	if held == nil {
		p.requests++
	}
	if p.join(s, ask.Client) {
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
