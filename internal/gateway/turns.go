package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// turns is when a pool in the order fair counts its clients' shares, and tells home.
type turns struct {
	timer   *time.Timer
	running bool
	telling bool
	number  uint64
	open    told        // that home has not answered; of number 0: nothing
	home    kmutex.Node // that was told it
}

// countShares charges those who hold slots, and tells home.
func (p *poolDriver) countShares() {
	p.turns.running = false
	if !p.limits.Fair {
		return
	}
	now := p.now()
	p.countHolds(now)
	here := p.present()
	home := p.spec.Home == p.self
	if home {
		p.lookAround(now, here)
		p.turns.open = told{}
	}
	news := p.tell(here)
	p.forget(now, here)
	if len(news.Clients) == 0 {
		return
	}
	p.turns.running = true
	p.turns.timer.Reset(sharesEvery)
	m, known := p.view.Member(p.spec.Home)
	if home || !known || p.turns.telling || p.ctx.Err() != nil {
		return
	}
	if p.turns.open.Number == 0 || p.turns.home != m.Node {
		p.turns.number++
		news.Number, news.Beyond = p.turns.number, p.beyond
		p.turns.open, p.turns.home = news, m.Node
	}
	news = p.turns.open
	p.turns.telling = true
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, sharesKeep)
		defer cancel()
		var answer totals
		err := p.call(ctx, m, sharesCall+p.name, news, &answer)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.turns.telling = false; err == nil && p.alive() {
			p.turns.open = told{}
			p.learn(p.now(), news, answer)
			p.settle()
		}
	})
}

// hearShares takes in, at home, what the gateway by tells of its clients.
func (p *poolDriver) hearShares(by string, body []byte) ([]byte, error) {
	var in told
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() || p.spec.Home != p.self {
		return nil, admission.ErrElsewhere
	}
	from, known := p.view.Named(by)
	if !known {
		return nil, admission.ErrElsewhere
	}
	now, here := p.now(), p.present()
	answer := p.hear(now, from.Node, in, here)
	p.forget(now, here)
	p.settle()
	return json.Marshal(answer)
}
