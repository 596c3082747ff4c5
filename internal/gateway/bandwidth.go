package gateway

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/kmutex"
)

// A pool may have a rate. Each token carries a part of it, and this gateway moves as many
// bytes per second as the tokens carry that are here, in use or not (package pace).
//
// A token that leaves stops counting before the message with it is sent. A token that a
// frozen machine has reported as free may be another gateway's: it does not count until the
// epoch begins. When rate or k changes, the smaller part holds as soon as the
// view is followed, the larger one when its epoch begins: then every member has followed
// the view.
//
// A request on a ticket's slot carries the part of the ticket's token while it may use
// the slot, wherever the token is; the gateway that has the ticket no longer counts its token.

// bandwidth is what a pool may move at this gateway. The pool's lock guards it; the pacers
// have their own.
type bandwidth struct {
	down, up pace.Pacer
	known    membership.Rate // to the pacers
	parts    parts
	none     bool // the pacers know that there are no parts
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

// init is for the zero value. Short is called when a transfer could use more, without the
// pool's lock.
func (b *bandwidth) init(valid func() bool, short func()) {
	for _, pacer := range []*pace.Pacer{&b.down, &b.up} {
		pacer.Valid, pacer.OnShort = valid, short
	}
}

// pacers returns what paces the two directions in which a request moves bytes.
func (b *bandwidth) pacers() (down, up *pace.Pacer) { return &b.down, &b.up }

// follow makes what the view says hold at once where it is less.
func (b *bandwidth) follow(spec membership.Pool) { b.parts = b.parts.lower(partsOf(spec)) }

// setShare tells the pacers the pool's rate, and how many tokens' parts are here now.
func (b *bandwidth) setShare(rate membership.Rate, tokens int) {
	if b.known != rate {
		b.known = rate
		b.down.Rate.Store(rate.Down)
		b.up.Rate.Store(rate.Up)
	}
	if b.none && b.parts == (parts{}) {
		return // and there was none before
	}
	b.none = b.parts == (parts{})
	b.down.Set(tokens, b.parts.down)
	b.up.Set(tokens, b.parts.up)
}

// transfers returns how many move bytes now, in the direction that has more.
func (b *bandwidth) transfers() int { return max(b.down.Totals().Transfers, b.up.Totals().Transfers) }

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

// pull is a set of requests of the gateway's own, placed in line to bring tokens here. The
// pool's lock guards it. In the zero value there are none.
type pull struct {
	placed  map[kmutex.Request]time.Time // that wait
	granted []kmutex.Request
	here    int         // tokens when they were made
	timer   *time.Timer // ends them
	pause   time.Duration
	next    time.Time
}

func (u *pull) going() bool { return len(u.placed)+len(u.granted) > 0 }

// complete reports whether all have their tokens.
func (u *pull) complete() bool { return len(u.granted) > 0 && len(u.placed) == 0 }

// begin asks for some of the pool's k tokens that are elsewhere: more the more transfers
// there are here. So of two gateways that both could use more each gets its part: what one
// takes grows with its transfers and with what the other has.
func (u *pull) begin(c *claims, m *kmutex.Machine, k, transfers int) {
	now := c.shared.now()
	if c.waiting > 0 || u.going() || now.Before(u.next) {
		return
	}
	u.here = m.TokensHere()
	n := int(math.Ceil(float64(k-u.here) * (1 - math.Pow(1-pullPart, float64(transfers)))))
	if n <= 0 {
		return
	}
	u.placed = make(map[kmutex.Request]time.Time)
	for range m.FreeHere() + n {
		c.last++
		u.placed[c.last] = now
		c.want(kmutex.EventAcquire, c.last)
	}
	u.timer.Reset(pullFor)
}

// grant notes that a request of the pull has its token, and reports whether it was one.
func (u *pull) grant(t kmutex.Request) bool {
	if _, ours := u.placed[t]; !ours {
		return false
	}
	delete(u.placed, t)
	u.granted = append(u.granted, t)
	return true
}

// end ends a pull, if one is going; so many tokens are here now.
func (u *pull) end(c *claims, here int) {
	if !u.going() {
		return
	}
	u.next = c.shared.now()
	if here > u.here {
		u.pause = 0
	} else {
		u.pause = min(max(2*u.pause, pullPause), pullLongest)
		u.next = u.next.Add(u.pause)
	}
	for _, t := range slices.Sorted(maps.Keys(u.placed)) {
		c.want(kmutex.EventCancel, t)
	}
	for _, t := range u.granted {
		c.want(kmutex.EventRelease, t)
	}
	u.void()
}

// void forgets the pull.
func (u *pull) void() { u.placed, u.granted = nil, nil }
