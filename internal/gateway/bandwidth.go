package gateway

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// A pool may have a rate. Each token carries a part of it, and this gateway moves as many
// bytes per second as the tokens carry that are here, in use or not (package pace).
//
// A token that goes counts no more before the message with it is sent. A token that a
// frozen machine has reported as free may be somebody else's: it does not count until the
// epoch begins. When rate or k changes, the smaller part holds as soon as the
// view is followed, the larger one when its epoch begins: then every member has followed
// the view.
//
// A request on a ticket's slot carries the part of the ticket's token while it may use
// the slot, wherever the token is; who has the ticket counts its token no longer.

// bandwidth is what a pool may move at this gateway. The pool's lock guards it; the pacers
// have their own.
type bandwidth struct {
	down, up pace.Pacer
	parts    parts
	pull     pull
}

// parts is what each token carries, in bytes per second; 0: there is no rate.
type parts struct{ down, up float64 }

func partsOf(spec membership.Pool) parts {
	n := float64(spec.Parts())
	return parts{float64(spec.Rate.Down) / n, float64(spec.Rate.Up) / n}
}

// lower returns the smaller parts of both.
func (p parts) lower(q parts) parts { return parts{lower(p.down, q.down), lower(p.up, q.up)} }

func lower(a, b float64) float64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (b *bandwidth) init(p *poolDriver) {
	b.pull.placed = make(map[kmutex.Request]time.Time)
	b.pull.timer = time.AfterFunc(time.Hour, p.pullDue)
	b.pull.timer.Stop()
	for _, pacer := range []*pace.Pacer{&b.down, &b.up} {
		pacer.Valid = func() bool { return p.env.entitled(p.self) }
		pacer.OnShort = p.short
	}
}

// lowerShares has what the view says hold at once where it is less. The caller holds the
// lock.
func (p *poolDriver) lowerShares() { p.parts = p.parts.lower(partsOf(p.spec)) }

// pace tells the pacers which share is here now. The caller holds the lock.
func (p *poolDriver) pace(begun bool) {
	if begun {
		p.parts = partsOf(p.spec)
	}
	tokens := 0
	if p.parts != (parts{}) && p.alive() {
		tokens = p.tokensHere()
	}
	p.down.Rate.Store(p.spec.Rate.Down)
	p.up.Rate.Store(p.spec.Rate.Up)
	p.down.Set(tokens, p.parts.down)
	p.up.Set(tokens, p.parts.up)
}

// tokensHere counts the tokens whose parts this gateway may move.
func (p *poolDriver) tokensHere() int {
	n := p.core.Machine().TokensHere()
	withheld := p.core.Withheld()
	for t, s := range p.held {
		if t.Granted && t.Used && s.state == slotGranted && !withheld.Has(s.grant.Token) {
			n--
		}
	}
	for _, carries := range p.redeemed {
		if carries {
			n++
		}
	}
	return max(0, n)
}

// carriesShare says whether a request on a ticket's slot carries the part of its token.
func (p *poolDriver) carriesShare(r *Redeemed, does bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, here := p.redeemed[r]; here {
		p.redeemed[r] = does
		p.pace(false)
	}
}

// Transfer returns the two directions in which a request moves bytes. They have to be
// stopped before the slot is released.
func (s *Slot) Transfer() (down, up *pace.Flow) { return s.pool.down.Join(), s.pool.up.Join() }

// Transfer is that of [Slot].
func (r *Redeemed) Transfer() (down, up *pace.Flow) { return r.pool.down.Join(), r.pool.up.Join() }

// A transfer that could use more than the share of this gateway may have the parts of
// tokens that rest elsewhere. This gateway asks for them as if requests had come: these
// stand in line like any other, so nobody who waits is overtaken. They take the tokens that
// rest here, too, or they would get no others. When all have theirs, or after a
// while, or when a request comes here, they end, and the tokens rest here.

const (
	// pullFor is how long they last.
	pullFor = 100 * time.Millisecond
	// pullPause is how long none are made after some that got nothing; it doubles.
	pullPause, pullLongest = 200 * time.Millisecond, 5 * time.Second
	// pullPart is how many of the tokens elsewhere one transfer asks for.
	pullPart = 0.25
)

// pull is requests that bring tokens here. The zero value is none.
type pull struct {
	placed  map[kmutex.Request]time.Time // that wait
	granted []kmutex.Request
	here    int // tokens when they were made
	timer   *time.Timer
	pause   time.Duration
	next    time.Time
}

// short is told by the pacers that the share is short.
func (p *poolDriver) short() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.env.now()
	if !p.alive() || p.env.ctx.Err() != nil || p.core.State() != pool.Installed || !p.env.entitled(p.self) {
		return
	}
	p.core.UseFree()
	if p.waiting == 0 && !p.pull.going() && !now.Before(p.pull.next) {
		p.beginPull(now)
	}
}

func (u *pull) going() bool { return len(u.placed)+len(u.granted) > 0 }

// beginPull asks for some of the tokens that are elsewhere: more the more transfers there
// are here. So of two gateways that both could use more each gets its part: what one takes
// grows with its transfers and with what the other has. The caller holds the lock.
func (p *poolDriver) beginPull(now time.Time) {
	m := p.core.Machine()
	p.pull.here = m.TokensHere()
	elsewhere := p.spec.K - p.pull.here
	transfers := max(p.down.Totals().Transfers, p.up.Totals().Transfers)
	n := int(math.Ceil(float64(elsewhere) * (1 - math.Pow(1-pullPart, float64(transfers)))))
	if n <= 0 {
		return
	}
	for range m.FreeHere() + n {
		p.last++
		p.pull.placed[p.last] = now
	}
	for t := p.last - kmutex.Request(len(p.pull.placed)) + 1; t <= p.last; t++ {
		p.step(kmutex.Event{Kind: kmutex.EventAcquire, Request: t})
	}
	p.pull.timer.Reset(pullFor)
}

// pullGranted notes that a request of the pull has its token, and reports whether it was
// one. The caller holds the lock.
func (p *poolDriver) pullGranted(t kmutex.Request) bool {
	u := &p.pull
	if _, ours := u.placed[t]; !ours {
		return false
	}
	delete(u.placed, t)
	u.granted = append(u.granted, t)
	return true
}

func (p *poolDriver) pullDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endPull()
}

// endPull ends a pull. The caller holds the lock.
func (p *poolDriver) endPull() {
	u := &p.pull
	if !p.alive() || !u.going() {
		return
	}
	now := p.env.now()
	if p.core.Machine().TokensHere() > u.here {
		u.pause, u.next = 0, now
	} else {
		u.pause = min(max(2*u.pause, pullPause), pullLongest)
		u.next = now.Add(u.pause)
	}
	placed, granted := u.placed, u.granted
	u.placed, u.granted = make(map[kmutex.Request]time.Time), nil
	for _, t := range slices.Sorted(maps.Keys(placed)) {
		p.step(kmutex.Event{Kind: kmutex.EventCancel, Request: t})
	}
	for _, t := range granted {
		p.step(kmutex.Event{Kind: kmutex.EventRelease, Request: t})
	}
}

// void forgets the pull with its incarnation.
func (u *pull) void() {
	clear(u.placed)
	u.granted = nil
}
