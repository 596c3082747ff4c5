package gateway

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// pendingMessages keeps messages for pools that the view here does not know yet. Views
// reach the gateways one after the other, so the first messages of a new pool can
// be faster than its definition. The zero value is empty and ready.
//
// If no view explains the pool for pendingFor, its messages are dropped and further ones
// refused, until pendingForget.
type pendingMessages struct {
	pools map[string]*pendingPool
	// count and bytes of all messages.
	count, bytes int
}

type pendingPool struct {
	since    time.Time // when its first message came
	messages []pendingMessage
	bytes    int
}

type pendingMessage struct {
	from    kmutex.Node
	message kmutex.Message
}

const (
	// pendingLimit, pendingBytes and pendingPools bound what is kept of all pools.
	pendingLimit = 4096
	pendingBytes = 32 << 20
	pendingPools = 256
	// pendingFor bounds how long a pool's messages are kept once another message comes:
	// much longer than a view takes.
	pendingFor = 10 * time.Second
	// pendingForget is when a pool that the view does not explain is forgotten.
	pendingForget = time.Minute
)

// put keeps a message for the named pool. It fails when the view has not explained the
// pool for too long, and when too much is kept.
func (p *pendingMessages) put(now time.Time, from kmutex.Node, name string, m kmutex.Message) error {
	p.expire(now)
	q, size := p.pools[name], sizeOf(&m)
	refused := q != nil && now.Sub(q.since) > pendingFor
	if refused || q == nil && len(p.pools) >= pendingPools || p.count >= pendingLimit || p.bytes+size > pendingBytes {
		return fmt.Errorf("%w: %q, from node %d", admission.ErrUnknownPool, name, from)
	}
	if q == nil {
		if p.pools == nil {
			p.pools = make(map[string]*pendingPool)
		}
		q = &pendingPool{since: now}
		p.pools[name] = q
	}
	q.messages = append(q.messages, pendingMessage{from, m})
	q.bytes += size
	p.count++
	p.bytes += size
	return nil
}

// take returns the messages for a pool, in order of arrival, and forgets them. If they
// are late, so may the links have been.
func (p *pendingMessages) take(name string) []pendingMessage {
	q := p.pools[name]
	if q == nil {
		return nil
	}
	delete(p.pools, name)
	return p.drop(q)
}

// expire drops messages that are too old, and forgets refused pools.
func (p *pendingMessages) expire(now time.Time) {
	for name, q := range p.pools {
		if age := now.Sub(q.since); age > pendingFor {
			p.drop(q)
			if age > pendingForget {
				delete(p.pools, name)
			}
		}
	}
}

// drop takes out the messages of q.
func (p *pendingMessages) drop(q *pendingPool) []pendingMessage {
	dropped := q.messages
	p.count -= len(dropped)
	p.bytes -= q.bytes
	q.messages, q.bytes = nil, 0
	return dropped
}

// sizeOf returns about how many bytes of memory m takes.
func sizeOf(m *kmutex.Message) int {
	const itself = 256
	return itself + 16*len(m.Tails) + 8*(len(m.Free)+len(m.Resting)) + len(m.Tag)
}
