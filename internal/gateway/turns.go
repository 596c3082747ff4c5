package gateway

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
)

// turns is when a pool in the order fair counts its clients' shares, and tells home.
type turns struct {
	timer   *time.Timer
	running bool
	telling bool
}

// turnGap is the least time between two looks at all clients, for each of them: so that a look takes a
// small part of the time, however many there are.
const turnGap = 10 * time.Microsecond

// mayTurn reports whether a client that is ahead may take a place because a token is free here.
func (p *poolDriver) mayTurn() bool {
	return p.limits.Fair && p.core.State() == pool.Installed && p.core.Machine().FreeHere() > 0
}

// turn has clients take places in line whose turn it is, and reports whether any is due.
func (p *poolDriver) turn() bool {
	if !p.limits.Fair || p.core.State() != pool.Installed || len(p.clients) == 0 {
		return false
	}
	if !p.turns.running {
		p.turns.running = true
		p.turns.timer.Reset(sharesEvery)
	}
	now := p.moment()
	if len(p.due) > 0 || now.Sub(p.turned) < time.Duration(len(p.clients))*turnGap && p.core.Machine().FreeHere() == 0 {
		return false
	}
	// As many places as slots come free until a further one can be asked for; one while nothing is known.
	places := 1
	if p.usual > 0 {
		places += int(math.Ceil(float64(p.spec.K) * float64(p.askInterval(p.limits.AskInterval)) / float64(p.usual)))
	}
	p.queue.turn(now, p.spec.K, places, p.core.Machine().FreeHere())
	return len(p.due) > 0
}

// countShares charges those who hold slots, and tells home.
func (p *poolDriver) countShares() {
	p.turns.running = false
	now := p.now()
	for _, s := range p.slots {
		if s.state == slotGranted {
			p.pay(s, now, false)
		}
	}
	waits := p.waits()
	home := p.spec.Home == p.self
	if home {
		p.lookAround(now)
	}
	told := p.tell(p.self, waits)
	p.forget(waits)
	if len(told.Clients) == 0 || !p.limits.Fair {
		return
	}
	p.turns.running = true
	p.turns.timer.Reset(sharesEvery)
	m, known := p.view.Member(p.spec.Home)
	if home || !known || p.turns.telling || p.ctx.Err() != nil {
		return
	}
	p.turns.telling = true
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, sharesKeep)
		defer cancel()
		var answer totals
		err := p.call(ctx, m, sharesCall+p.name, told, &answer)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.turns.telling = false; err == nil && p.alive() {
			p.learn(p.now(), told, answer)
			p.settle()
		}
	})
}

// hearShares takes in, at home, what another gateway tells of its clients.
func (p *poolDriver) hearShares(body []byte) ([]byte, error) {
	var in told
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() || p.spec.Home != p.self {
		return nil, admission.ErrElsewhere
	}
	waits := p.waits()
	answer := p.hear(p.now(), in, waits)
	p.forget(waits)
	p.settle()
	return json.Marshal(answer)
}
