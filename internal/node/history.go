package node

import (
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// history keeps the latest events of the cluster for the status page. It is safe for concurrent use;
// the zero value is empty.
type history struct {
	mu     sync.Mutex
	events []admin.Event
}

// maxEvents bounds a history: the oldest events go first.
const maxEvents = 200

// add notes an event. Pool is empty if it is not about a single pool.
func (h *history) add(pool, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == maxEvents {
		h.events = slices.Delete(h.events, 0, 1)
	}
	h.events = append(h.events, admin.Event{At: time.Now().UTC(), Pool: pool, Text: text})
}

// recent returns the events that the status page shows, the oldest first.
func (h *history) recent(now time.Time) []admin.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := slices.IndexFunc(h.events, func(e admin.Event) bool { return now.Sub(e.At) <= admin.PastStepSeconds*admin.PastValues*time.Second })
	if first < 0 {
		return nil
	}
	return slices.Clone(h.events[first:])
}
