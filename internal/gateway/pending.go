package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// pendingMessages keeps messages for pools that the view here does not know yet. Views
// reach the gateways one after the other, so the first messages of a new pool can
// be faster than its definition. The zero value is empty and ready.
type pendingMessages struct{ messages []pendingMessage }

type pendingMessage struct {
	from    kmutex.Node
	pool    string
	message kmutex.Message
	at      time.Time
}

const (
	// pendingLimit bounds the messages that are kept.
	pendingLimit = 4096
	// pendingFor bounds how long they are: much longer than a view takes.
	pendingFor = 10 * time.Second
)

// put keeps a message. It fails when messages for the same pool have been kept
// for too long, or too many: then the pool is one that the view will not explain.
func (p *pendingMessages) put(now time.Time, m pendingMessage) error {
	expired := false
	p.messages = slices.DeleteFunc(p.messages, func(old pendingMessage) bool {
		gone := now.Sub(old.at) > pendingFor
		expired = expired || gone && old.pool == m.pool
		return gone
	})
	if expired || len(p.messages) >= pendingLimit {
		return fmt.Errorf("%w: %q, from node %d", admission.ErrUnknownPool, m.pool, m.from)
	}
	m.at = now
	p.messages = append(p.messages, m)
	return nil
}

// take returns the messages for a pool, in order of arrival, and forgets them.
func (p *pendingMessages) take(pool string) []pendingMessage {
	var out []pendingMessage
	p.messages = slices.DeleteFunc(p.messages, func(m pendingMessage) bool {
		if m.pool == pool {
			out = append(out, m)
		}
		return m.pool == pool
	})
	return out
}
