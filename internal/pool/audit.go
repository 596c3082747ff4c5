package pool

import (
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Home counts the pool's tokens now and then. A token that some message carries
// is nowhere at that moment, and the gateways are not asked at the same moment,
// so one count proves nothing. A token that several counts in a row see nowhere,
// and that nobody was granted in between, or that they see in use by the same two
// tickets, is lost or doubled: a new epoch mends it. The grants matter where
// round trips are long: there a busy token is in a message most of the time.
//
// A count also shows when one gateway keeps most of the tokens after a burst. Its loss would
// stop the others for a lease, so a new epoch spreads them.

const (
	// auditEvery is the time between two counts with few gateways; with many it
	// grows, so that home asks auditRate gateways a second.
	auditEvery = 2 * time.Second
	auditRate  = 100
	// auditSoon is the time before the first count after k was lowered in a pool with a rate.
	auditSoon = 100 * time.Millisecond
	// auditStrikes is how many counts in a row must find the same fault.
	auditStrikes = 3
	// spreadEvery is the shortest time between two epochs that only spread tokens.
	spreadEvery = 10 * time.Second
)

// Count asks a gateway which of the pool's tokens it has.
type Count struct{ Round uint64 }

// Holdings is what one gateway has of a pool's tokens.
type Holdings struct {
	Round uint64
	// Epoch that runs here; another epoch's holdings do not count.
	Epoch   uint64
	Running []kmutex.Grant
	Free    kmutex.TokenSet
	// Used were granted here since the last count.
	Used kmutex.TokenSet
}

// audit is what the counts of the present epoch have found.
type audit struct {
	due     time.Duration // 0: this gateway is not home, or the epoch does not run
	round   uint64
	from    map[kmutex.Node]*Holdings // in this round
	strikes map[fault]int
}

// fault is a token that is nowhere (no tickets), or in use by two.
type fault struct {
	token    kmutex.Token
	one, two kmutex.Request
}

func (p *Pool) auditEvery() time.Duration {
	return max(auditEvery, time.Duration(len(p.view.Members))*time.Second/auditRate)
}

// count ends one round of counting and begins the next.
func (p *Pool) count(now time.Duration) {
	a := &p.audit
	if a.due == 0 || now < a.due {
		return
	}
	pause := p.auditEvery()
	if p.view.Left { // until no more than k are in use, which is soon as a rule
		pause = min(pause, auditSoon<<min(a.round, 10))
	}
	if a.round > 0 && pause == p.auditEvery() {
		p.judge(now)
	}
	a.due = now + pause
	a.round++
	a.from = make(map[kmutex.Node]*Holdings, len(p.view.Members))
	for _, n := range p.view.Members {
		p.post(Letter{To: n, Count: &Count{Round: a.round}})
	}
}

func (p *Pool) holdings(c *Count) *Holdings {
	h := &Holdings{Round: c.Round}
	if p.state == Installed {
		h.Epoch = p.installed
		h.Running, h.Free = p.machine.Holdings()
		h.Used, p.used = p.used, nil
	}
	return h
}

func (p *Pool) counted(now time.Duration, from kmutex.Node, h *Holdings) {
	a := &p.audit
	if a.due == 0 || h.Round != a.round || h.Epoch != p.installed {
		return
	}
	a.from[from] = h
	switch {
	case len(a.from) < len(p.view.Members):
	case p.view.Left && p.isWhole(a.from):
		p.fx.ChangeEpoch, p.fx.Whole = p.view.Epoch, true
	case now >= p.spreadAt && p.machine.Spreads() && lopsided(a.from):
		p.spreadAt = now + spreadEvery
		p.fx.ChangeEpoch, p.fx.Spread = p.view.Epoch, true
	}
}

// isWhole reports whether no more tokens are in use than K, and than each class's K, after
// these were lowered. While more are in use nobody is admitted with one, so once true it stays
// true for the rest of the epoch.
func (p *Pool) isWhole(all map[kmutex.Node]*Holdings) bool {
	if p.view.Owed {
		return false // what lost gateways use may not be known
	}
	used := p.withheld.Clone()
	for _, h := range all {
		for _, g := range h.Running {
			if g.Token < 0 {
				return false
			}
			used.Add(g.Token)
		}
	}
	for _, c := range p.view.Classes {
		of := used.Clone()
		if of.KeepAll(c.Tokens); of.Len() > c.K {
			return false
		}
	}
	return used.Len() <= p.view.K
}

// lopsided reports whether a gateway has no token, another one keeps more free ones than
// an even share, and none has used more than half a share since the count before. An
// epoch that begins with nobody waiting then spreads them, and they are not lopsided
// after that.
func lopsided(all map[kmutex.Node]*Holdings) bool {
	tokens, least, most, used := 0, kmutex.MaxK, 0, 0
	for _, h := range all {
		free := h.Free.Len()
		has := free + len(h.Running)
		tokens += has
		least, most, used = min(least, has), max(most, free), max(used, h.Used.Len())
	}
	share := (tokens + len(all) - 1) / len(all)
	return least == 0 && most > share && used <= share/2
}

// judge examines a whole round. A round in which a gateway did not answer, or was in another
// epoch, proves nothing: whether that gateway is alive is for its lease to say.
func (p *Pool) judge(now time.Duration) {
	a := &p.audit
	all := make([]*Holdings, 0, len(p.view.Members))
	for _, n := range p.view.Members {
		if a.from[n] == nil {
			a.strikes = nil
			return
		}
		all = append(all, a.from[n])
	}
	faulty := a.strike(p.whole, all)
	if len(faulty) > 0 {
		a.strikes = nil
		p.fx.Faulty = faulty
		p.mend(now)
	}
}

// strike adds a count and returns the tokens whose fault has been found often enough.
// The tokens of whole have to be somewhere.
func (a *audit) strike(whole kmutex.TokenSet, all []*Holdings) []kmutex.Token {
	var seen kmutex.TokenSet
	user := make(map[kmutex.Token]kmutex.Request)
	strikes := make(map[fault]int)
	for _, h := range all {
		seen.AddAll(h.Free)
		seen.AddAll(h.Used)
		for _, g := range h.Running {
			if g.Token < 0 {
				continue
			}
			seen.Add(g.Token)
			if other, twice := user[g.Token]; twice {
				f := fault{token: g.Token, one: other, two: g.Request}
				strikes[f] = a.strikes[f] + 1
			}
			user[g.Token] = g.Request
		}
	}
	lost := whole.Clone()
	lost.RemoveAll(seen)
	for _, q := range lost.Tokens() {
		f := fault{token: q}
		strikes[f] = a.strikes[f] + 1
	}
	a.strikes = strikes
	var bad []kmutex.Token
	for f, n := range strikes {
		if n >= auditStrikes {
			bad = append(bad, f.token)
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// expected returns the tokens that are somewhere all the time in the epoch that
// begins so: those that no lost gateway may still use.
func expected(in *kmutex.Install) kmutex.TokenSet {
	whole := in.Tokens.Clone()
	whole.RemoveAll(in.Withheld)
	return whole
}
