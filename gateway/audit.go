package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
)

// Home counts a pool's tokens now and then. A token that some message carries
// is nowhere at that moment, and the gateways are not asked at the same moment,
// so one count proves nothing. A token that several counts in a row see
// nowhere, or see in use by the same two tickets, is lost or doubled: a new
// epoch mends it. Should it only have been on its way each time, that epoch
// costs a few milliseconds and nothing else.

const (
	// auditEvery is the time between two counts with few gateways; with many it
	// grows, so that home is asked to do no more than auditRate calls a second.
	auditEvery = 2 * time.Second
	auditRate  = 100
	// auditStrikes is how many counts in a row must find the same fault.
	auditStrikes = 3
)

// holdings is what one gateway has of a pool's tokens.
type holdings struct {
	// Epoch that has begun here; another epoch's holdings do not count.
	Epoch   uint64
	Running []kmutex.Grant
	Free    kmutex.TokenSet
}

// audit counts the tokens of the pools that have their home here, until Close.
func (g *Gateway) audit() {
	counts := make(map[string]*count)
	for {
		g.mu.RLock()
		every := max(auditEvery, time.Duration(g.size)*time.Second/auditRate)
		g.mu.RUnlock()
		select {
		case <-time.After(every):
		case <-g.ctx.Done():
			return
		}
		for _, p := range g.all() {
			if counts[p.name] == nil {
				counts[p.name] = new(count)
			}
			p.auditOnce(g.ctx, counts[p.name])
		}
	}
}

// auditOnce counts once, if this gateway is the pool's home.
func (p *pool) auditOnce(ctx context.Context, c *count) {
	p.mu.Lock()
	spec, view, settled := p.spec, p.view, p.machine != nil && !p.machine.Frozen() && p.spec.Home == p.self
	withheld, expected := p.withheld, p.tokens
	p.mu.Unlock()
	if !settled {
		*c = count{}
		return
	}
	all := p.holdingsOf(ctx, view.Members)
	if all == nil || slices.ContainsFunc(all, func(h holdings) bool { return h.Epoch != spec.Epoch }) {
		*c = count{} // a gateway that does not answer is for the lease to judge
		return
	}
	if withheld.Len() > 0 || len(spec.Owed) > 0 {
		expected = nil // then some tokens are nowhere on purpose, until all come back
	}
	faults := c.take(spec.Epoch, expected, all)
	if len(faults) == 0 {
		return
	}
	*c = count{}
	p.watch.AuditFailed()
	p.log.Error("tokens are lost or doubled: the line is formed anew", slog.Uint64("epoch", spec.Epoch), slog.Any("tokens", faults))
	p.recover(spec.Epoch)
}

// recover asks for a new epoch, in the background.
func (p *pool) recover(epoch uint64) {
	p.g.wg.Go(func() {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeout(p.g.ctx, patience)
		defer cancel()
		if err := p.g.cfg.Views.Recover(ctx, p.name, epoch); err != nil && p.g.ctx.Err() == nil {
			p.log.Error("the line could not be formed anew", slog.Uint64("epoch", epoch), slog.Any("error", err))
		}
	})
}

// holdingsOf asks every member for its tokens; nil if one does not answer.
func (p *pool) holdingsOf(ctx context.Context, members []membership.Member) []holdings {
	all := make([]holdings, len(members))
	errs := make([]error, len(members))
	eachMember(ctx, members, func(ctx context.Context, i int, m membership.Member) {
		if m.Node == p.self {
			all[i] = p.holdings()
		} else {
			errs[i] = p.g.call(ctx, m.PeerAddr, holdingsPath(p.name), nil, &all[i])
		}
	})
	if errors.Join(errs...) != nil {
		return nil
	}
	return all
}

func (p *pool) holdings() holdings {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine == nil || p.machine.Frozen() {
		return holdings{}
	}
	running, free := p.machine.Holdings()
	return holdings{Epoch: p.spec.Epoch, Running: running, Free: free}
}

// count is what the last counts of one pool have found.
type count struct {
	epoch   uint64
	strikes map[fault]int
}

// fault is a token that is nowhere (no tickets), or in use by two.
type fault struct {
	token    kmutex.Token
	one, two kmutex.Ticket
}

// take adds a count and returns the tokens that have been found at fault often
// enough. The expected ones have to be somewhere.
func (c *count) take(epoch uint64, expected kmutex.TokenSet, all []holdings) []kmutex.Token {
	if c.epoch != epoch {
		*c = count{epoch: epoch}
	}
	var seen kmutex.TokenSet
	user := make(map[kmutex.Token]kmutex.Ticket)
	strikes := make(map[fault]int)
	for _, h := range all {
		for _, q := range h.Free.Tokens() {
			seen.Add(q)
		}
		for _, g := range h.Running {
			seen.Add(g.Token)
			if other, twice := user[g.Token]; twice {
				f := fault{token: g.Token, one: other, two: g.Ticket}
				strikes[f] = c.strikes[f] + 1
			}
			user[g.Token] = g.Ticket
		}
	}
	for _, q := range expected.Tokens() {
		if f := (fault{token: q}); !seen.Has(q) {
			strikes[f] = c.strikes[f] + 1
		}
	}
	c.strikes = strikes
	var bad []kmutex.Token
	for f, n := range strikes {
		if n >= auditStrikes {
			bad = append(bad, f.token)
		}
	}
	slices.Sort(bad)
	return bad
}
