package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/pool"
)

// Letters between two gateways' parts of a pool go over the link that there is for
// the messages: a gateway that cannot open a new connection to another one still
// takes part. They can be long, so they are written and read as JSON outside the
// pool's lock.

// poolTopic names a pool's letters on the links.
const poolTopic = "pool/"

// letterPatience bounds the time that a letter takes. One that is not there by
// then goes again.
const letterPatience = 30 * time.Second

// post sends a letter in the background, as long as its epoch lasts. The caller
// holds the lock.
func (p *poolDriver) post(l pool.Letter) {
	if p.env.ctx.Err() != nil {
		return // Close waits for what has begun before it
	}
	if p.letters == nil {
		p.letters, p.stopLetters = context.WithCancel(p.env.ctx)
	}
	epoch := p.letters
	p.env.wg.Go(func() {
		ctx, cancel := context.WithTimeout(epoch, letterPatience)
		defer cancel()
		data, err := json.Marshal(&l)
		if err == nil {
			err = p.env.links.SendPayload(ctx, l.To, poolTopic+p.name, data)
		}
		if p.env.ctx.Err() != nil || err == nil && l.Answer == nil {
			return
		}
		if err != nil && epoch.Err() == nil && p.env.losses.First("letter/"+p.name) {
			p.log.Info("a payload did not reach a peer: sending it again", slog.Uint64("node", uint64(l.To)), slog.Any("error", err))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case !p.alive():
		case err == nil:
			p.core.Delivered(l)
		default:
			p.carry(p.core.Undelivered(p.env.clock(), l))
		}
	})
}

// endLetters gives up those that are under way. The caller holds the lock.
func (p *poolDriver) endLetters() {
	if p.letters != nil {
		p.stopLetters()
		p.letters = nil
	}
}
