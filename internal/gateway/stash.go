package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// stash keeps messages for pools that the view here does not know yet. Views
// reach the gateways one after the other, so the first messages of a new pool can
// be faster than its definition. The zero value is empty and ready.
type stash struct{ messages []stashed }

type stashed struct {
	from    kmutex.Node
	pool    string
	message kmutex.Message
	at      time.Time
}

const (
	// stashLimit bounds the messages that are kept.
	stashLimit = 4096
	// stashFor bounds how long they are: much longer than a view takes.
	stashFor = 10 * time.Second
)

// put keeps a message. It fails when messages for the same pool have been kept
// for too long, or too many: then the pool is one that the view will not explain.
func (s *stash) put(now time.Time, m stashed) error {
	expired := false
	s.messages = slices.DeleteFunc(s.messages, func(old stashed) bool {
		gone := now.Sub(old.at) > stashFor
		expired = expired || gone && old.pool == m.pool
		return gone
	})
	if expired || len(s.messages) >= stashLimit {
		return fmt.Errorf("%w: %q, from node %d", admission.ErrUnknownPool, m.pool, m.from)
	}
	m.at = now
	s.messages = append(s.messages, m)
	return nil
}

// take returns the messages for a pool, in order of arrival, and forgets them.
func (s *stash) take(pool string) []stashed {
	var out []stashed
	s.messages = slices.DeleteFunc(s.messages, func(m stashed) bool {
		if m.pool == pool {
			out = append(out, m)
		}
		return m.pool == pool
	})
	return out
}
