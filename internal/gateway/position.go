package gateway

import (
	"context"
	"net/url"
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

func linePath(pool string) string { return "/v1/pools/" + url.PathEscape(pool) + "/line" }

// lineView is what one gateway knows of a pool's line.
type lineView struct {
	// Stamps are the arrival times of its waiting requests.
	Stamps []int64
	// PerSecond is how many of them have been admitted in a second, lately; 0 if
	// none had to wait.
	PerSecond float64
}

// positions is the whole line, for a moment.
type positions struct {
	turn   chan struct{} // whoever fills it may read and write the others
	at     time.Time
	stamps []int64
	rate   float64
}

func (p *poolDriver) lineView() lineView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := lineView{Stamps: make([]int64, 0, p.waiting)}
	for s := range p.each {
		if s.state == slotWaiting {
			v.Stamps = append(v.Stamps, s.since.UnixNano())
		}
	}
	if p.waiting > 0 && p.rate.every > 0 {
		v.PerSecond = float64(time.Second) / float64(p.rate.every)
	}
	return v
}

// position returns the place of who came at the given time, from 1, and the wait
// to be expected; 0 where they are not known. Without the answers of all gateways
// it is an estimate from those that there are.
func (p *poolDriver) position(ctx context.Context, stamp int64) (n int, wait time.Duration) {
	l := &p.positions
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, 0
	}
	if now := p.env.now(); now.Sub(l.at) > positionsKeep {
		l.at, l.stamps, l.rate = now, nil, 0
		for _, v := range p.wholeLine() {
			l.stamps = append(l.stamps, v.Stamps...)
			l.rate += v.PerSecond
		}
		slices.Sort(l.stamps)
	}
	n = 1 + sort.Search(len(l.stamps), func(i int) bool { return l.stamps[i] >= stamp })
	if l.rate > 0 {
		wait = time.Duration(float64(n) / l.rate * float64(time.Second))
	}
	return n, wait
}

// wholeLine asks all gateways. Many use the answers: who asked first may leave.
func (p *poolDriver) wholeLine() []lineView {
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
	ctx, cancel := context.WithTimeout(p.env.ctx, patience)
	defer cancel()
	all := make([]lineView, len(members))
	peercall.Each(members, atOnce, func(i int, m membership.Member) {
		if m.Node == self {
			all[i] = p.lineView()
		} else if p.env.call(ctx, m.PeerAddr, linePath(p.name), nil, &all[i]) != nil {
			all[i] = lineView{} // it does not answer: its part is missing
		}
	})
	return all
}
