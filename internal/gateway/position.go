package gateway

import (
	"container/heap"
	"context"
	"slices"
	"sort"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/peercall"
)

// A ticket's position is not kept anywhere: the line is linked batch by batch over
// the gateways. It is found by asking every gateway when its waiting requests
// have arrived, at most once a second per pool and only while somebody asks.

// positionsKeep is how long the answers serve.
const positionsKeep = time.Second

// lineView is what one gateway knows of a pool's line.
type lineView struct {
	// Stamps are the arrival times of its waiting requests.
	Stamps []int64
	// Hold is the mean of the holds that have ended lately, 0 if none has, and Held how long
	// each slot in use has been held so far.
	Hold time.Duration
	Held []time.Duration
}

// positions is the whole line of a pool, for a moment.
type positions struct {
	turn   chan struct{} // whoever fills it may read and write the others
	at     time.Time
	stamps []int64
	waits  []time.Duration // of each in the line, and of one more; nil: not known
}

// Position returns the place in a pool's line, from 1, of a request that came at the given
// time, over all gateways, and the wait to expect; 0 where it is not known.
func (g *Gateway) Position(ctx context.Context, pool string, arrived time.Time) (position int, wait time.Duration) {
	if p := g.pool(pool); p != nil {
		return p.positions.of(ctx, p, arrived.UnixNano())
	}
	return 0, 0
}

// lineOf returns what this gateway knows of a pool's line.
func lineOf(p *poolDriver) lineView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := lineView{Stamps: make([]int64, 0, p.waiting)}
	for _, s := range p.all() {
		switch {
		case s.state == slotWaiting:
			v.Stamps = append(v.Stamps, s.since.UnixNano())
		case s.state == slotGranted && !s.at.IsZero():
			v.Held = append(v.Held, p.now().Sub(s.at))
		}
	}
	v.Hold = p.usual
	return v
}

// of returns the place of a request that came at the given time, from 1, and the wait
// to expect; 0 where they are not known. If some gateways do not answer it is an
// estimate from the others.
func (l *positions) of(ctx context.Context, p *poolDriver, stamp int64) (n int, wait time.Duration) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, 0
	}
	if now := p.now(); now.Sub(l.at) > positionsKeep {
		l.at, l.stamps = now, nil
		var held, holds []time.Duration
		for _, v := range wholeLine(p) {
			l.stamps, held = append(l.stamps, v.Stamps...), append(held, v.Held...)
			if v.Hold > 0 {
				holds = append(holds, v.Hold)
			}
		}
		slices.Sort(l.stamps)
		p.mu.Lock()
		k := p.spec.K
		p.mu.Unlock()
		l.waits = expect(len(l.stamps)+1, k, mean(holds), held)
	}
	n = 1 + sort.Search(len(l.stamps), func(i int) bool { return l.stamps[i] >= stamp })
	if l.waits != nil {
		wait = l.waits[n-1]
	}
	return n, wait
}

func mean(of []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(max(1, len(of)))
}

// expect returns how long the first n in a line of k slots may wait, if holds last as long as they
// did, or as those do that have not ended; nil if none has ended: nothing is known. Slots that have been held for
// longer than usual come back one after the other within another hold, or later if they are very
// late.
func expect(n, k int, usual time.Duration, held []time.Duration) []time.Duration {
	if usual <= 0 || k <= 0 {
		return nil
	}
	usual = max(usual, mean(held)/2)
	slices.Sort(held)
	held = held[:min(k, len(held))]
	inTime, _ := slices.BinarySearch(held, usual)
	late := time.Duration(len(held) - inTime)
	free := make(times, 0, k) // when each slot is free again
	for i, d := range held {
		if i < inTime {
			free = append(free, usual-d)
		} else {
			free = append(free, max((d-usual)/4, usual*time.Duration(i-inTime+1)/(late+1)))
		}
	}
	for len(free) < k { // on its way, or at a gateway that does not answer
		free = append(free, usual/2)
	}
	heap.Init(&free)
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = max(free[0], time.Millisecond)
		free[0] += usual
		heap.Fix(&free, 0)
	}
	return waits
}

// times are a heap, the earliest first.
type times []time.Duration

var _ heap.Interface = (*times)(nil)

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push and Pop are not used: there are always as many times as slots.
func (t *times) Push(any) {}

func (t *times) Pop() any { return nil }

// wholeLine asks all gateways. It has no caller's context: many use the answers, and the
// one that asked first may leave.
func wholeLine(p *poolDriver) []lineView {
	p.mu.Lock()
	var members []membership.Member
	if p.view != nil {
		members = p.view.Serving()
	}
	self := p.self
	p.mu.Unlock()
	const (
		patience = time.Second
		atOnce   = 16
	)
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	all := make([]lineView, len(members))
	peercall.Each(members, atOnce, func(i int, m membership.Member) {
		if m.Node == self {
			all[i] = lineOf(p)
		} else if p.call(ctx, m, lineCall+p.name, nil, &all[i]) != nil {
			all[i] = lineView{} // it does not answer: its part is missing
		}
	})
	return all
}
