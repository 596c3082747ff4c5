package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// outbox sends what one pool tells other gateways. The pool's lock guards it.
//
// Letters go over the link that carries the messages: a gateway that cannot open a
// new connection to another one still takes part. They can be long, so they are written
// and read as JSON outside the pool's lock.
type outbox struct {
	*poolEnv
	// letters lasts as long as the epoch whose letters are being sent; nil: none is.
	letters context.Context
	stop    context.CancelFunc
}

// poolTopic names a pool's letters on the links.
const poolTopic = "pool/"

// letterPatience bounds the time that a letter takes. One that has not arrived by
// then goes again.
const letterPatience = 30 * time.Second

// send sends messages. It returns the epoch of one that could not be queued and that the
// line misses; 0: none. While several requests wait here (busy), more messages will follow
// soon and can share a write. Otherwise somebody waits for this one alone.
func (o *outbox) send(messages []kmutex.Envelope, busy bool) (missed uint64) {
	for i := range messages {
		m := &messages[i]
		o.watch.Sent(m.Message.Kind)
		o.spans.depart(&m.Message)
		send := o.links.SendNow
		if busy {
			send = o.links.Send
		}
		if err := send(m.To, o.name, m.Message); err != nil && o.isMissed(m, err) {
			missed = m.Message.Epoch
		}
	}
	return missed
}

// isMissed reports whether anybody misses a message that could not be queued, and logs it then.
// One to a gateway that has just left the view is void: the pool's next epoch is on its way here.
func (o *outbox) isMissed(m *kmutex.Envelope, err error) bool {
	if errors.Is(err, transport.ErrUnknownPeer) || errors.Is(err, transport.ErrClosed) {
		return false
	}
	if o.losses.First("message/" + o.name) {
		o.log.Warn("message to a peer is lost",
			slog.Uint64("node", uint64(m.To)), slog.String("message", m.Message.String()), slog.Any("error", err))
	}
	return true
}

// post sends a letter in the background, as long as its epoch lasts. If it does not arrive,
// failed is called, without the pool's lock.
func (o *outbox) post(l pool.Letter, failed func(pool.Letter)) {
	if o.ctx.Err() != nil {
		return // Close waits for what has begun before it
	}
	if o.letters == nil {
		o.letters, o.stop = context.WithCancel(o.ctx)
	}
	epoch := o.letters
	o.wg.Go(func() {
		ctx, cancel := context.WithTimeout(epoch, letterPatience)
		defer cancel()
		data, err := json.Marshal(&l)
		if err == nil {
			err = o.links.SendPayload(ctx, l.To, poolTopic+o.name, data)
		}
		if err == nil || o.ctx.Err() != nil {
			return
		}
		told := errors.Is(err, transport.ErrNotTaken) || errors.Is(err, transport.ErrLinkDown) // by its receiver, by the link
		if epoch.Err() == nil && !told && o.losses.First("letter/"+o.name) {
			o.log.Info("a payload did not reach a peer: sending it again", slog.Uint64("node", uint64(l.To)), slog.Any("error", err))
		}
		failed(l)
	})
}

// endLetters gives up the letters that are being sent.
func (o *outbox) endLetters() {
	if o.letters != nil {
		o.stop()
		o.letters = nil
	}
}

// changeEpoch asks for a new epoch, in the background. The pool asks again if none
// comes and it still needs one.
func (o *outbox) changeEpoch(epoch uint64, why membership.Why) {
	if o.ctx.Err() != nil {
		return
	}
	o.wg.Go(func() {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeout(o.ctx, patience)
		defer cancel()
		if err := o.views.Recover(ctx, o.name, epoch, why); err != nil && o.ctx.Err() == nil {
			o.log.Error("the pool cannot move to a new epoch", slog.Uint64("epoch", epoch), slog.Any("error", err))
		}
	})
}
