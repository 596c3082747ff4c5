package pace

import (
	"container/heap"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errStopped is why a transfer gets nothing more: it was stopped.
var errStopped = errors.New("pace: the transfer was stopped")

const (
	// tick is the shortest time between two services of the waiting transfers, which share one
	// timer.
	tick = time.Millisecond
	// shortEvery is how often the share is judged, see [Pacer.OnShort].
	shortEvery = 200 * time.Millisecond
)

// Pacer shares an account out to transfers. Its methods are safe for concurrent use. The zero value
// has no rate.
type Pacer struct {
	// OnShort, if it is not nil, is called now and then while the transfers could use more
	// than the share: they have waited for at least half of the last 200 ms. It is called
	// on a goroutine of its own and must not be changed once there are transfers.
	OnShort func()
	// Valid, if it is not nil, reports whether anything may be moved at all. It must be fast.
	Valid func() bool

	// Rate is the pool's rate, for [Flow.Rate].
	Rate atomic.Int64

	paced atomic.Bool  // there is a rate
	flows atomic.Int64 // that have joined and not stopped

	mu      sync.Mutex
	account account
	moved   uint64  // bytes in all
	virtual float64 // the start of the last flow that was served
	waiting waiters
	timer   *time.Timer
	dueAt   time.Duration // when the timer fires; 0: it is not set
	origin  time.Time     // of all times

	since  time.Duration // when the first of the waiting flows began to wait
	waited time.Duration // since judged
	judged time.Duration
}

// clock returns the time since it was first asked for. The caller holds the lock.
func (p *Pacer) clock() time.Duration {
	if p.origin.IsZero() {
		p.origin = time.Now()
	}
	return time.Since(p.origin)
}

// Set sets the number of tokens here and the bytes per second that each carries; 0: there is no rate.
// When it returns, the new share holds.
func (p *Pacer) Set(tokens int, each float64) {
	if each == 0 && !p.paced.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Set(p.clock(), tokens, each)
	p.paced.Store(each > 0)
	p.serve()
}

// Totals are a pacer's counts.
type Totals struct {
	// Share in bytes per second, now.
	Share float64
	// Gained is how many bytes the share has allowed so far, Moved how many were taken.
	Gained float64
	Moved  uint64
	// Transfers counts the present transfers.
	Transfers int
}

// Totals returns the pacer's counts.
func (p *Pacer) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.advance(p.clock())
	return Totals{Share: p.account.Share(), Gained: p.account.gained, Moved: p.moved, Transfers: int(p.flows.Load())}
}

// Flow is one direction of one transfer. Take and Return are for one goroutine at a time.
// Nil and its zero value have no rate.
type Flow struct {
	pacer *Pacer
	// finish orders the waiting flows: a flow that has had less comes first.
	finish  float64
	waiter  waiter
	paid    bool // the last bytes were taken from an account
	stopped atomic.Bool

	// Without a rate: the bytes taken at once, when they were taken last, and whether some of them
	// came back.
	piece  int
	taken  time.Time
	unused bool
}

// Begin makes f a new transfer of p, which the caller has to Stop. A nil Pacer has no rate.
func (f *Flow) Begin(p *Pacer) {
	*f = Flow{pacer: p}
	if p != nil {
		p.flows.Add(1)
	}
}

func (f *Flow) isFree() bool { return f == nil || f.pacer == nil }

// Rate returns the rate of the pool over all gateways; 0: there is none.
func (f *Flow) Rate() int64 {
	if f.isFree() {
		return 0
	}
	return f.pacer.Rate.Load()
}

// Stop ends the transfer: its Take fails from now on, also a Take that waits. Calls after the
// first do nothing.
func (f *Flow) Stop() {
	if f.isFree() || f.stopped.Swap(true) {
		return
	}
	p := f.pacer
	p.flows.Add(-1)
	if !p.paced.Load() {
		return // flows that waited when the rate was taken away have been served
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(&f.waiter)
}

// Done is the part of a context that Take asks for.
type Done interface{ Done() <-chan struct{} }

// Take waits until the transfer may move some of want bytes, and returns how many; want is
// positive. It fails with errStopped, also when ctx ends.
func (f *Flow) Take(ctx Done, want int) (int, error) {
	if f.isFree() {
		return want, nil
	}
	p := f.pacer
	if !p.paced.Load() {
		return f.unpaced(want), nil
	}
	p.mu.Lock()
	if f.stopped.Load() {
		p.mu.Unlock()
		return 0, errStopped
	}
	if len(p.waiting) == 0 {
		if n := p.take(want); n > 0 {
			f.served(p.startOf(f), n)
			p.mu.Unlock()
			return n, nil
		}
	}
	w := &f.waiter
	*w = waiter{flow: f, want: want, start: p.startOf(f), got: make(chan int, 1)}
	got := w.got
	p.enter(w)
	p.serve()
	p.mu.Unlock()
	n := 0
	select {
	case n = <-got:
	case <-ctx.Done():
		p.mu.Lock()
		p.leave(w)
		p.mu.Unlock()
		n = <-got // the flow may have been served meanwhile
	}
	if n == 0 {
		return 0, errStopped
	}
	return n, nil
}

// unpaced is Take without a rate.
func (f *Flow) unpaced(want int) int {
	now := time.Now()
	switch took := now.Sub(f.taken); {
	case f.piece == 0:
		f.piece = first
	case took > brief:
		f.piece = max(int(float64(f.piece)*(brief.Seconds()/took.Seconds())), least)
	case took < brief/2 && !f.unused:
		f.piece = min(2*f.piece, most)
	}
	f.paid, f.taken, f.unused = false, now, want < f.piece
	return min(want, f.piece)
}

// Return gives back n bytes that were taken and not moved.
func (f *Flow) Return(n int) {
	if f.isFree() || n <= 0 {
		return
	}
	if !f.paid {
		f.unused = true
		return
	}
	p := f.pacer
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Return(p.clock(), n)
	f.finish -= float64(n)
	p.moved -= uint64(n)
	p.serve()
}

// lag is how many chunks a transfer may be behind the others and still make up for: even a transfer
// that could use more does not wait all the time.
const lag = 16

// startOf returns the place of a flow among the waiting ones. The caller holds the lock.
func (p *Pacer) startOf(f *Flow) float64 { return max(p.virtual-lag*chunk(p.account.each), f.finish) }

// served notes that the flow got n bytes. The caller holds the lock.
func (f *Flow) served(start float64, n int) {
	p := f.pacer
	p.virtual, f.finish, f.paid = max(p.virtual, start), start+float64(n), true
	p.moved += uint64(n)
}

// take takes from the account. The caller holds the lock.
func (p *Pacer) take(want int) int {
	if p.Valid != nil && !p.Valid() {
		return 0
	}
	return p.account.Take(p.clock(), want)
}

// enter adds w to the waiting flows. The caller holds the lock.
func (p *Pacer) enter(w *waiter) {
	if len(p.waiting) == 0 {
		p.since = p.clock()
	}
	heap.Push(&p.waiting, w)
}

// leave ends w's wait without bytes, if it waits. The caller holds the lock.
func (p *Pacer) leave(w *waiter) {
	if w.got == nil {
		return
	}
	heap.Remove(&p.waiting, w.index)
	p.left(w, 0)
}

// left ends w's wait with n bytes. The caller holds the lock.
func (p *Pacer) left(w *waiter, n int) {
	w.got <- n
	w.got = nil
	if len(p.waiting) == 0 {
		p.waited += p.clock() - p.since
	}
}

// serve gives the waiting flows the account's credit, and sets the timer for the next call while any
// still waits. The caller holds the lock.
func (p *Pacer) serve() {
	for len(p.waiting) > 0 {
		w := p.waiting[0]
		n := p.take(w.want)
		if n == 0 {
			break
		}
		heap.Pop(&p.waiting)
		w.flow.served(w.start, n)
		p.left(w, n)
	}
	if len(p.waiting) == 0 {
		return
	}
	wait := p.account.Wait(p.waiting[0].want)
	if wait < 0 || wait > shortEvery {
		wait = shortEvery // to be judged
	}
	wait = max(wait, tick)
	at := p.clock() + wait
	if p.dueAt != 0 && p.dueAt <= at {
		return
	}
	p.dueAt = at
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, p.due)
	} else {
		p.timer.Reset(wait)
	}
}

// due is the timer's function.
func (p *Pacer) due() {
	p.mu.Lock()
	p.dueAt = 0
	short := p.short()
	p.serve()
	p.mu.Unlock()
	if short {
		p.OnShort()
	}
}

// short reports, at most every 200 ms, that the transfers could use more than the share.
// The caller holds the lock.
func (p *Pacer) short() bool {
	now := p.clock()
	length := now - p.judged
	if p.OnShort == nil || length < shortEvery || !p.paced.Load() {
		return false
	}
	if len(p.waiting) > 0 {
		p.waited += now - p.since
		p.since = now
	}
	short := length < 2*shortEvery && p.waited >= length/2
	p.judged, p.waited = now, 0
	return short
}

type waiter struct {
	flow  *Flow
	want  int
	start float64
	got   chan int // nil: it does not wait
	index int
}

// waiters is a heap: the flow that has had the least is first.
type waiters []*waiter

func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].start < w[j].start }
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push implements heap.Interface.
func (w *waiters) Push(x any) {
	it := x.(*waiter)
	it.index = len(*w)
	*w = append(*w, it)
}

// Pop implements heap.Interface.
func (w *waiters) Pop() any {
	old := *w
	n := len(old) - 1
	it := old[n]
	old[n] = nil
	*w = old[:n]
	return it
}
